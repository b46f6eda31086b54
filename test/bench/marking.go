package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
)

// marking measures writers beside a relay that marks what it has delivered, and one that does not.
func marking(ctx context.Context, b *bench) (err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s, err := b.aside(ctx, "marks", "", true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	var reached [2][]float64
	marked, lag := 0.0, 0.0
	for n := range 2 * latencyRounds(b.repeat) {
		with := n%2 == 1
		line, perSecond, _, err := s.markTurn(ctx, flatOut, with)
		if err != nil {
			return err
		}
		fmt.Printf("   marks: %t: %s; %.0f marks/s\n", with, line, perSecond)
		reached[n%2] = append(reached[n%2], line.Reached)
		marked = max(marked, perSecond)
		if !with {
			continue
		}
		line, _, late, err := s.markTurn(ctx, 1000, true)
		if err != nil {
			return err
		}
		fmt.Printf("   marks at a steady rate: %s; marked %.2f s later at most\n", line, late)
		lag = max(lag, late)
	}
	b.figure("marks", fmt.Sprintf("inserts as fast as 8 writers can, beside %.0f marks/s", marked), fmt.Sprintf("%.0f rows/s (%s)", median(reached[1]), percent(reached[1], reached[0])),
		fmt.Sprintf("%.0f rows/s without marks", median(reached[0])), "5000 marks/s, > −10 %")
	b.figure("marks", "oldest row without a mark, at 1000 rows/s", fmt.Sprintf("%.2f s", lag), "", "< 3 s")
	return nil
}

// markTurn gives the stream's figures, marks a second and the age of the oldest unmarked row. In the
// end every row has its mark, or none has one.
func (s *beside) markTurn(ctx context.Context, rate int, with bool) (line Latency, perSecond, late float64, err error) {
	if _, err := s.w.conn.Exec(ctx, "TRUNCATE outbox"); err != nil {
		return line, 0, 0, err
	}
	var env []string
	if with {
		env = []string{"CDC_RELAY_OUTBOX_MARK_COLUMN=published_at", "CDC_RELAY_OUTBOX_MARK_BATCH_ROWS=5000"}
	}
	r, err := s.relay(ctx, env...)
	if err != nil {
		return line, 0, 0, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := s.passed(ctx, r); err != nil {
		return line, 0, 0, err
	}
	looking, end := context.WithCancel(ctx)
	defer end()
	looked := make(chan error, 1)
	go func() {
		var err error
		late, err = s.oldest(looking)
		looked <- err
	}()
	began := time.Now()
	line, err = s.follow(ctx, r, rate)
	end()
	if err := errors.Join(err, <-looked); err != nil {
		return line, 0, 0, err
	}
	marked, err := s.count(ctx, "SELECT count(*) FROM outbox WHERE published_at IS NOT NULL")
	perSecond = float64(marked) / time.Since(began).Seconds()
	if err != nil || with != (marked > 0) {
		return line, 0, 0, errors.Join(err, fmt.Errorf("%w: marks: %t, and %d rows have one when the writers end; it may take more -seconds", errUnverified, with, marked))
	}
	for with {
		left, err := s.count(ctx, "SELECT count(*) FROM outbox WHERE published_at IS NULL")
		if err != nil || left == 0 {
			return line, perSecond, late, err
		}
		if time.Since(began) > drainLimit {
			return line, 0, 0, fmt.Errorf("%w: %d rows have no mark", errUnverified, left)
		}
		pause(ctx, 100*time.Millisecond)
	}
	return line, perSecond, late, nil
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
