package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/proof"
)

// Session is the connection that the proof is about.
type Session interface {
	proof.Session
	Standbys(ctx context.Context) (maintenance.Standbys, error)
}

// Done counts the rows of one table.
type Done struct {
	Rows   int // that it was done to
	Held   int // whose dead letter waits
	Passed int // updated, deleted or locked by somebody else meanwhile
	Passes int
	Bytes  int64 // of files that were written

	Others   int // that somebody else marked, after they were found without a mark
	Rejected int // that got to say that they were rejected
	Took     time.Duration
	Parts    *Partitions // nil: no whole ones go
	Oldest   *float64    // age in seconds of the oldest row that the job is about; nil: none, or not known
}

// With is what was done here and then there.
func (d Done) With(o Done) Done {
	d.Rows, d.Held, d.Passed, d.Passes, d.Took = d.Rows+o.Rows, d.Held+o.Held, d.Passed+o.Passed, d.Passes+o.Passes, d.Took+o.Took
	d.Bytes, d.Rejected, d.Others = d.Bytes+o.Bytes, d.Rejected+o.Rejected, d.Others+o.Others
	if d.Oldest == nil || o.Oldest != nil && *o.Oldest > *d.Oldest {
		d.Oldest = o.Oldest
	}
	return d
}

// Partitions counts those of one table.
type Partitions struct {
	Removed, Made int
	Held          int // that stay because a dead letter waits
	Ahead         int // that are there before they are needed
}

// Job acts on proven rows in transactions of a bounded size, no faster than the limits allow.
type Job struct {
	Session
	limits *Limits
	alone  bool                                                             // locked rows are waited for: our role may not leave them out
	before func(ctx context.Context, rows []proof.Row) ([]proof.Row, error) // nil: nothing
	pace   pace
	size   size

	looked time.Time // at the standbys
}

// NewJob is a job on one connection. alone: rows that somebody has locked are waited for.
func NewJob(s Session, limits *Limits, alone bool) *Job {
	most := limits.transactionRows()
	return &Job{Session: s, limits: limits, alone: alone, pace: pace{rate: limits.MaxRowsPerSecond}, size: size{most: most, now: most}}
}

// Run proves and acts until nothing is due. tell is called after each pass.
func (j *Job) Run(ctx context.Context, prover *proof.Prover, tell func(Done)) (done Done, err error) {
	began := time.Now()
	passes := prover.Passes(j, j.limits.Ahead())
	for {
		out, err := passes.Next(ctx)
		done.Rows += out.Acted
		if err == nil {
			done.Held += out.Held
			done.Passed += out.Named - out.Held - out.Acted
		}
		done.Took = time.Since(began)
		if err != nil || out.Named == 0 {
			return done, err
		}
		done.Passes++
		tell(done)
	}
}

// Act implements proof.Session in place of the connection's own.
func (j *Job) Act(ctx context.Context, rows []proof.Row) (acted int, err error) {
	if j.before != nil {
		if rows, err = j.before(ctx, rows); err != nil {
			return 0, err
		}
	}
	for len(rows) > 0 {
		n := min(j.size.next(j.pace.late(time.Now()), j.limits.Batch()), len(rows))
		if err := j.ready(ctx, n); err != nil {
			return acted, err
		}
		did, err := j.Session.Act(ctx, rows[:n])
		acted += did
		switch {
		case err == nil:
			j.size.done()
			rows = rows[n:]
			continue
		case postgres.Reason(err) != fault.ReasonLockTimeout:
			return acted, err
		}
		skip, stop := j.size.stalled(n, j.alone)
		if stop {
			return acted, err
		}
		if skip {
			rows = rows[n:]
		}
	}
	return acted, nil
}

// ready waits for the pace and for standbys.
func (j *Job) ready(ctx context.Context, rows int) error {
	if err := wait(ctx, j.pace.take(time.Now(), rows)); err != nil {
		return err
	}
	if j.limits.PauseAtReplicaLag <= 0 || time.Since(j.looked) < time.Second {
		return nil
	}
	for began := time.Now(); ; {
		standbys, err := j.Standbys(ctx)
		if err != nil {
			return err
		}
		j.looked = time.Now()
		if standbys.Lag <= j.limits.PauseAtReplicaLag {
			return nil
		}
		if time.Since(began) >= j.limits.Wait {
			return &fault.Error{
				Kind: fault.KindRetry, Reason: fault.ReasonReplicationLag, Op: "work on delivered rows", Err: fmt.Errorf("a standby is %s behind, and maintenance.pause_at_replica_lag is %s", standbys.Lag.Round(time.Second), j.limits.PauseAtReplicaLag),
				Hint: "wait until it has caught up",
			}
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Unfinished reports whether the same may succeed later, without anybody doing anything for it.
func Unfinished(err error) bool {
	e, ok := errors.AsType[*fault.Error](err)
	return ok && (e.Kind == fault.KindRetry || e.Kind == fault.KindBusy)
}
