package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// markedPerSecond is how many rows a second may get their mark beside the writers: more than the figure asks for.
const markedPerSecond = 5500

// inMarks have rows marked.
var inMarks = []string{"CDC_RELAY_OUTBOX_MARK_COLUMN=published_at"}

// marking measures writers with turns of the command that marks what is delivered, and how late
// marks come where a relay sets them.
func marking(ctx context.Context, b *bench) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return b.streaming(ctx, "marks", "", func(s *beside, r *running) error {
		var fast turns
		for range latencyRounds(b.repeat) {
			if err := s.markTurns(ctx, r, &fast); err != nil {
				return err
			}
		}
		reached, reference := fast.written()
		b.figure("marks", fmt.Sprintf("inserts as fast as 8 writers can, beside %.0f marks/s", fast.perSecond(proving)), reached, reference, "5000 marks/s, > −10 %")
		reached, reference = fast.cost()
		b.figure("marks", "CPU time of a mark", reached, reference, "")
		if err := r.stop(); err != nil {
			return err
		}
		lag := 0.0
		for range latencyRounds(b.repeat) {
			late, err := s.markLag(ctx)
			if err != nil {
				return err
			}
			lag = max(lag, late)
		}
		b.figure("marks", "oldest row without a mark, at 1000 rows/s", fmt.Sprintf("%.2f s", lag), "", "< 3 s")
		return nil
	})
}

// markTurns starts with rows for the command and by hand, so that neither has to wait for writers.
func (s *beside) markTurns(ctx context.Context, r *running, into *turns) error {
	if _, err := s.w.conn.Exec(ctx, "TRUNCATE outbox"); err != nil {
		return err
	}
	seconds := 2 * turnCycles(s.b.seconds) * int(turnLength/time.Second)
	if err := s.old(ctx, 1, markedPerSecond*(seconds+6)); err != nil {
		return err
	}
	if err := s.passed(ctx, r); err != nil {
		return err
	}
	p, err := s.begin(append(slices.Clone(inMarks), notInRun, fmt.Sprintf("CDC_RELAY_MAINTENANCE_MAX_ROWS_PER_SECOND=%d", markedPerSecond)), "mark", "--once")
	if err != nil {
		return err
	}
	err = s.take(ctx, r, flatOut, &work{command: p, rate: markedPerSecond, left: due + " AND published_at IS NULL",
		hand: "UPDATE outbox SET published_at = now() WHERE ctid = ANY (ARRAY(SELECT ctid FROM outbox WHERE published_at IS NULL AND created_at < now() - interval '1 hour' ORDER BY created_at DESC LIMIT $1))"}, into)
	select {
	case <-p.done:
		err = errors.Join(err, fmt.Errorf("%w: mark ended before the measurement did: %s", errUnverified, p.stderr))
	default:
	}
	return errors.Join(err, p.halt()) // those of the writers are more than a figure needs
}

// markLag gives the age of the oldest row without a mark. In the end every row has its mark.
func (s *beside) markLag(ctx context.Context) (late float64, err error) {
	if _, err := s.w.conn.Exec(ctx, "TRUNCATE outbox"); err != nil {
		return 0, err
	}
	r, err := s.relay(ctx, inMarks...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := s.passed(ctx, r); err != nil {
		return 0, err
	}
	looking, end := context.WithCancel(ctx)
	defer end()
	looked := make(chan error, 1)
	go func() {
		var err error
		late, err = s.oldest(looking)
		looked <- err
	}()
	line, err := s.follow(ctx, r, 1000)
	end()
	if err := errors.Join(err, <-looked); err != nil {
		return 0, err
	}
	fmt.Printf("   marks at a steady rate: %s; marked %.2f s later at most\n", line, late)
	for began := time.Now(); ; {
		left, err := s.count(ctx, "SELECT count(*) FROM outbox WHERE published_at IS NULL")
		if err != nil || left == 0 {
			return late, err
		}
		if time.Since(began) > drainLimit {
			return 0, fmt.Errorf("%w: %d rows have no mark", errUnverified, left)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// oldest looks until ctx ends how old the oldest row without a mark becomes.
func (s *beside) oldest(ctx context.Context) (seconds float64, err error) {
	conn, err := pgx.Connect(ctx, s.w.url())
	if err != nil {
		return 0, err
	}
	lasting := context.WithoutCancel(ctx)
	defer conn.Close(lasting)
	for pause(ctx, 100*time.Millisecond) {
		var age float64
		if err := conn.QueryRow(lasting, "SELECT coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 FROM outbox WHERE published_at IS NULL").Scan(&age); err != nil {
			return 0, err
		}
		seconds = max(seconds, age)
	}
	return seconds, nil
}
