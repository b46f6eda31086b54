package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// How exactly a standstill is known: in a drain, whoever looks takes from the contestant.
const (
	positionEvery      = 25 * time.Millisecond
	positionEveryDrain = 50 * time.Millisecond
)

// standstill is how long a position did not move at most, as seen by who looks at it.
type standstill struct {
	last    wal.LSN
	since   time.Time // it last moved, or counting begins; zero: counting begins with its next move
	longest time.Duration
}

// look counts up to a move, too: both ends of a standstill are seen equally late.
func (s *standstill) look(at wal.LSN, now time.Time) {
	if !s.since.IsZero() {
		s.longest = max(s.longest, now.Sub(s.since))
	}
	if at != s.last {
		s.last = at
		if now.After(s.since) {
			s.since = now
		}
	}
}

// watch looks until ctx ends.
func (s *standstill) watch(ctx context.Context, conn *pgx.Conn, slot string, every time.Duration) error {
	for pause(ctx, every) {
		at, err := confirmedAt(context.WithoutCancel(ctx), conn, slot)
		if err != nil {
			return err
		}
		s.look(at, time.Now())
	}
	return nil
}

func confirmedAt(ctx context.Context, conn *pgx.Conn, slot string) (wal.LSN, error) {
	var at wal.LSN
	err := conn.QueryRow(ctx, "SELECT coalesce(confirmed_flush_lsn, '0/0')::text FROM pg_replication_slots WHERE slot_name = $1", slot).Scan(&at)
	if err != nil {
		return 0, fmt.Errorf("position of slot %s: %w", slot, err)
	}
	return at, nil
}

// watchSlot begins to count after the warm-up, whether or not the position has moved.
func watchSlot(ctx context.Context, conn *pgx.Conn, slot string) (time.Duration, error) {
	s := standstill{since: time.Now().Add(warmUp)}
	err := s.watch(ctx, conn, slot, positionEvery)
	return s.longest, err
}

// watchDrain begins to count with the position's first move. What it returns ends the
// watch and gives the longest standstill: zero of a position that did not move before.
//
// It is connected to another database: the CPU time of all backends of the workload's
// is the drain's.
func (w *workload) watchDrain(ctx context.Context, slot string) (func() (time.Duration, error), error) {
	conn, err := pgx.Connect(ctx, w.b.pg.URL("postgres"))
	if err != nil {
		return nil, err
	}
	at, err := confirmedAt(ctx, conn, slot)
	if err != nil {
		conn.Close(ctx)
		return nil, err
	}
	s := standstill{last: at}
	watching, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer conn.Close(context.WithoutCancel(ctx))
		ended <- s.watch(watching, conn, slot, positionEveryDrain)
	}()
	return sync.OnceValues(func() (time.Duration, error) {
		end()
		err := <-ended
		return s.longest, err
	}), nil
}
