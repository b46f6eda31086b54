package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// writers insert rows at a steady rate and note how long each takes. Each has its own keys.
type writers struct {
	s    *beside
	base int
	all  []*writer
	ends []chan error
	stop context.CancelFunc
}

type writer struct {
	mu     sync.Mutex
	rows   []insertion
	failed int
}

// insertion is a row's insert.
type insertion struct {
	at     time.Time
	took   time.Duration
	marked bool // it came back with a mark
}

// startWriters numbers the rows behind base.
func (s *beside) startWriters(ctx context.Context, base, rate int) *writers {
	ctx, stop := context.WithCancel(ctx)
	w := &writers{s: s, base: base, stop: stop}
	interval := time.Second * latencyWriters / time.Duration(rate)
	for i := range latencyWriters {
		one, ended := &writer{}, make(chan error, 1)
		w.all, w.ends = append(w.all, one), append(w.ends, ended)
		go func() { ended <- w.write(ctx, one, int64(base+1+i), interval) }()
	}
	return w
}

func (w *writers) write(ctx context.Context, one *writer, n int64, interval time.Duration) error {
	lasting := context.WithoutCancel(ctx)
	conn, err := pgx.Connect(lasting, w.s.w.url())
	if err != nil {
		return err
	}
	defer conn.Close(lasting)
	const insert = `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
		VALUES ($1::text::uuid, $2, $3::text::uuid, 'Changed', $4) RETURNING published_at IS NOT NULL`
	for next := time.Now(); pause(ctx, time.Until(next)); next = next.Add(interval) {
		row := insertion{at: time.Now()}
		err := conn.QueryRow(lasting, insert, fmt.Sprintf("%s%012x", idPrefix, n), fmt.Sprintf("bench%d", n%4), aggregate(n), order(n)).Scan(&row.marked)
		row.took = time.Since(row.at)
		one.mu.Lock()
		if err != nil {
			one.failed++
		} else {
			one.rows = append(one.rows, row)
			n += latencyWriters
		}
		one.mu.Unlock()
		if conn.IsClosed() {
			return err
		}
	}
	return nil
}

// end stops them. Their rows are numbered from base on without a gap only as far as the slowest
// came, so the others' last ones are made up for.
func (w *writers) end(ctx context.Context) (last int, err error) {
	w.stop()
	for _, ended := range w.ends {
		if failed := <-ended; err == nil {
			err = failed
		}
	}
	most := 0
	for _, one := range w.all {
		most = max(most, len(one.rows))
	}
	for i, one := range w.all {
		for k := len(one.rows); k < most && err == nil; k++ {
			n := w.base + 1 + i + k*latencyWriters
			_, err = w.s.w.conn.Exec(ctx, "SELECT bench_rows($1, $1, 285, 4)", n)
		}
	}
	return w.base + most*latencyWriters, err
}

// failures counts the inserts that failed.
func (w *writers) failures() (sum int) {
	for _, one := range w.all {
		one.mu.Lock()
		sum += one.failed
		one.mu.Unlock()
	}
	return sum
}

// took is, in milliseconds, how long the rows took that keep says.
func (w *writers) took(keep func(insertion) bool) (all []float64) {
	for _, one := range w.all {
		one.mu.Lock()
		for _, row := range one.rows {
			if keep(row) {
				all = append(all, row.took.Seconds()*1000)
			}
		}
		one.mu.Unlock()
	}
	return all
}

// between are the rows that were being inserted at a time of the span.
func between(from, to time.Time) func(insertion) bool {
	return func(r insertion) bool { return r.at.Before(to) && r.at.Add(r.took).After(from) }
}

// firstMarked is, of each writer, the first row that the trigger saw: whoever waited for the
// trigger's lock waited with that one.
func (w *writers) firstMarked() (all []float64) {
	for _, one := range w.all {
		one.mu.Lock()
		for _, row := range one.rows {
			if row.marked {
				all = append(all, row.took.Seconds()*1000)
				break
			}
		}
		one.mu.Unlock()
	}
	return all
}
