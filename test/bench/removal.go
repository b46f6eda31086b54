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

const (
	// removedPerSecond is how many rows a second the command may remove beside the stream.
	removedPerSecond = 5000

	// lightRate of the stream, in rows a second, leaves two cores idle half of the time. At 1000 rows a second the
	// broker, the writers and the consumer alone keep them busy, and delays say how busy and nothing else.
	lightRate = 250
)

// removeBeside measures the stream with turns of the command at 5000 rows a second.
func (s *beside) removeBeside(ctx context.Context, r *running) error {
	if err := s.warm(ctx, r); err != nil {
		return err
	}
	var light, fast turns
	for range latencyRounds(s.b.repeat) {
		for _, one := range []struct {
			rate int
			into *turns
		}{{lightRate, &light}, {flatOut, &fast}} {
			if err := s.removeTurns(ctx, r, one.rate, one.into); err != nil {
				return err
			}
		}
	}
	reached, reference := light.p99()
	s.b.figure("retention", fmt.Sprintf("p99 of the stream at %d rows/s while %.0f rows/s are removed", lightRate, light.perSecond(proving)), reached, reference, "< +5 %")
	reached, reference = fast.written()
	s.b.figure("retention", fmt.Sprintf("inserts as fast as 8 writers can, while %.0f rows/s are removed", fast.perSecond(proving)), reached, reference, "> −3 %")
	reached, reference = light.cost()
	s.b.figure("retention", "CPU time of a removed row", reached, reference, "")
	return nil
}

// removeTurns starts with as many old rows as the command needs longer for than the measurement takes.
func (s *beside) removeTurns(ctx context.Context, r *running, rate int, into *turns) error {
	if _, err := s.w.conn.Exec(ctx, "TRUNCATE outbox"); err != nil {
		return err
	}
	seconds := 2 * turnCycles(s.b.seconds) * int(turnLength/time.Second) // of the command and by hand
	if err := s.old(ctx, 1, removedPerSecond*(seconds+6)); err != nil {
		return err
	}
	if err := s.passed(ctx, r); err != nil {
		return err
	}
	p, err := s.begin(append(slices.Clone(removing), fmt.Sprintf("CDC_RELAY_MAINTENANCE_MAX_ROWS_PER_SECOND=%d", removedPerSecond)), "retention", "--once")
	if err != nil {
		return err
	}
	err = s.take(ctx, r, rate, &work{command: p, rate: removedPerSecond, left: due,
		hand: "DELETE FROM outbox WHERE ctid = ANY (ARRAY(SELECT ctid FROM outbox WHERE created_at < now() - interval '1 hour' ORDER BY created_at DESC LIMIT $1))"}, into)
	select {
	case <-p.done:
		err = errors.Join(err, fmt.Errorf("%w: retention ended before the measurement did: %s", errUnverified, p.stderr))
	default:
	}
	if err := errors.Join(err, s.finish(ctx, p, "retention", "--once")); err != nil {
		return err
	}
	if left, err := s.count(ctx, due); err != nil || left > 0 {
		return errors.Join(fmt.Errorf("%w: %d rows that are due are left", errUnverified, left), err)
	}
	return nil
}
