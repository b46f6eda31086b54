package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// notInRun leaves the work to the command.
const notInRun = "CDC_RELAY_MAINTENANCE_IN_RUN=false"

// removing are the settings of `retention`.
var removing = []string{"CDC_RELAY_OUTBOX_RETENTION_THEN=delete", "CDC_RELAY_OUTBOX_RETENTION_KEEP=1h", notInRun}

// indexed is what the plan of `retention` asks for in a table of that size.
const indexed = "CREATE INDEX ON outbox (created_at)"

const due = "SELECT count(*) FROM outbox WHERE created_at < now() - interval '1 hour'"

// removal deletes delivered rows: as fast as it may, and slowly beside a stream.
func removal(ctx context.Context, b *bench) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return b.streaming(ctx, "retention", indexed, func(s *beside, r *running) error {
		if err := s.removeAll(ctx, r); err != nil {
			return err
		}
		return s.removeBeside(ctx, r)
	})
}

// removeAll has the command and a loop of bare deletes remove the same number of rows in turns.
func (s *beside) removeAll(ctx context.Context, r *running) error {
	rows := min(s.b.rows, 200_000)
	var proven, bare []float64
	for n := range 2 * s.b.repeat {
		if err := s.old(ctx, n*rows+1, (n+1)*rows); err != nil {
			return err
		}
		if err := s.passed(ctx, r); err != nil {
			return err
		}
		began := time.Now()
		var err error
		if n%2 == 0 {
			err = s.do(ctx, append(slices.Clone(removing), "CDC_RELAY_MAINTENANCE_MAX_ROWS_PER_SECOND=0"), "retention", "--once")
		} else {
			err = s.bareDeletes(ctx)
		}
		took := time.Since(began)
		if err != nil {
			return err
		}
		if left, err := s.count(ctx, "SELECT count(*) FROM outbox"); err != nil || left > 0 {
			return errors.Join(fmt.Errorf("%w: %d rows are left", errUnverified, left), err)
		}
		if rate := float64(rows) / took.Seconds(); n%2 == 0 {
			proven = append(proven, rate)
		} else {
			bare = append(bare, rate)
		}
	}
	if err := s.readBack(ctx, 2*s.b.repeat*rows, nil); err != nil {
		return err
	}
	s.b.figure("retention", fmt.Sprintf("`retention --once` of %d rows without a limit, from its start to its end", rows), fmt.Sprintf("%.0f rows/s", median(proven)),
		fmt.Sprintf("%.0f rows/s by `DELETE` of 1000 rows in a loop, without proof", median(bare)), "≥ 20 000 rows/s")
	return nil
}

func (s *beside) bareDeletes(ctx context.Context) error {
	if _, err := s.w.conn.Exec(ctx, "SET synchronous_commit = off"); err != nil {
		return err
	}
	for {
		tag, err := s.w.conn.Exec(ctx, "DELETE FROM outbox WHERE ctid = ANY (ARRAY(SELECT ctid FROM outbox WHERE published_at IS NULL AND created_at < now() - interval '1 hour' ORDER BY created_at LIMIT 1000))")
		if err != nil || tag.RowsAffected() == 0 {
			_, failed := s.w.conn.Exec(ctx, "RESET synchronous_commit")
			return errors.Join(err, failed)
		}
	}
}

// removeBeside measures the stream without and with the command at 5000 rows a second, in turns.
func (s *beside) removeBeside(ctx context.Context, r *running) error {
	var p99, rate [2][]float64
	for n := range 2 * latencyRounds(s.b.repeat) {
		for _, asked := range []int{1000, flatOut} {
			line, err := s.removeTurn(ctx, r, asked, n%2 == 1)
			if err != nil {
				return err
			}
			fmt.Printf("   retention beside it: %t: %s\n", n%2 == 1, line)
			if asked == flatOut {
				rate[n%2] = append(rate[n%2], line.Reached)
			} else {
				p99[n%2] = append(p99[n%2], line.P99)
			}
		}
	}
	s.b.figure("retention", "p99 of the stream at 1000 rows/s while 5000 rows/s are removed", fmt.Sprintf("%.1f ms (%s)", median(p99[1]), percent(p99[1], p99[0])),
		fmt.Sprintf("%.1f ms without", median(p99[0])), "< +5 %")
	s.b.figure("retention", "inserts as fast as 8 writers can, while 5000 rows/s are removed", fmt.Sprintf("%.0f rows/s (%s)", median(rate[1]), percent(rate[1], rate[0])),
		fmt.Sprintf("%.0f rows/s without", median(rate[0])), "> −3 %")
	return nil
}

// removeTurn starts with as many old rows as the command needs longer for than the measurement takes.
func (s *beside) removeTurn(ctx context.Context, r *running, rate int, with bool) (Latency, error) {
	if _, err := s.w.conn.Exec(ctx, "TRUNCATE outbox"); err != nil {
		return Latency{}, err
	}
	const perSecond = 5000
	if err := s.old(ctx, 1, perSecond*(s.b.seconds+8)); err != nil { // without the command too, so that both find the same table
		return Latency{}, err
	}
	if err := s.passed(ctx, r); err != nil {
		return Latency{}, err
	}
	if !with {
		return s.follow(ctx, r, rate)
	}
	p, err := s.begin(append(slices.Clone(removing), fmt.Sprintf("CDC_RELAY_MAINTENANCE_MAX_ROWS_PER_SECOND=%d", perSecond)), "retention", "--once")
	if err != nil {
		return Latency{}, err
	}
	line, err := s.follow(ctx, r, rate)
	select {
	case <-p.done:
		err = errors.Join(err, fmt.Errorf("%w: retention ended before the measurement did: %s", errUnverified, p.stderr))
	default:
	}
	if err := errors.Join(err, s.finish(ctx, p, "retention", "--once")); err != nil {
		return line, err
	}
	if left, err := s.count(ctx, due); err != nil || left > 0 {
		return line, errors.Join(fmt.Errorf("%w: %d rows that are due are left", errUnverified, left), err)
	}
	return line, nil
}
