package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/proof"
)

// proven measures how long the relay's proof waits: from the insert position to a slot that has
// passed it. The relay is idle but for a row before each look.
func proven(ctx context.Context, b *bench) error {
	return b.streaming(ctx, "proof", "", func(s *beside, r *running) error { return s.proofs(ctx, r) })
}

func (s *beside) proofs(ctx context.Context, r *running) error {
	if err := s.passed(ctx, r); err != nil {
		return err
	}
	survey, err := maintenance.OpenSurvey(ctx, postgres.Config{URL: s.w.url()})
	if err != nil {
		return err
	}
	defer survey.Close()
	rows := 0
	for _, before := range []struct{ what, sql string }{
		{"behind a row that was just written", "SELECT 1"},
		{"behind a row and `pg_switch_wal()`", "SELECT pg_switch_wal()"},
	} {
		var all []float64
		for range 10 * s.b.seconds {
			rows++
			if _, err := s.w.conn.Exec(ctx, "SELECT bench_rows($1, $1, 285, 4)", rows); err != nil {
				return err
			}
			if _, err := s.w.conn.Exec(ctx, before.sql); err != nil {
				return err
			}
			took, err := s.proofOnce(ctx, survey)
			if err != nil {
				return err
			}
			all = append(all, took.Seconds()*1000)
			if !pause(ctx, 50*time.Millisecond) {
				return context.Cause(ctx)
			}
		}
		s.b.figure("proof", "insert position known to slot past it, idle relay, "+before.what, quantiles(all), "", "p99 ≤ 250 ms")
	}
	if err := s.passed(ctx, r); err != nil {
		return err
	}
	return s.readBack(ctx, rows, nil)
}

// proofOnce is a wait of the engine's, with the times that it has by default. That the slot is past the
// position is looked at once more.
func (s *beside) proofOnce(ctx context.Context, survey *maintenance.Surveyor) (time.Duration, error) {
	fence, err := survey.Fence(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := proof.New(proof.Config{Slots: []string{s.j.slot}}, nil).Await(ctx, survey, fence); err != nil {
		return 0, err
	}
	took := time.Since(began)
	at, err := confirmedAt(ctx, s.w.conn, s.j.slot)
	if err == nil && at < fence {
		err = fmt.Errorf("%w: the slot is at %s, before %s", errUnverified, at, fence)
	}
	return took, err
}
