package upkeep

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/rs/zerolog"
)

// Worker does one kind of work. One goroutine uses it.
type Worker interface {
	// Once does what is due in the table with that number, and ends.
	Once(ctx context.Context, table int, tell func(Done)) (Done, error)
	Close()
}

// Beside is one kind of work beside a relay.
type Beside struct {
	Job    string
	Tables []Table
	Every  time.Duration
	Open   func(context.Context) (Worker, error)
}

// Table names a table, and what happens to its rows.
type Table struct{ Name, Then string }

// Loop works again and again while its process holds the slot. Whatever happens to the work is
// shown and logged, and goes no further: rows that are not done are done later.
type Loop struct {
	plan  Beside
	holds func() (holds bool, why string)
	log   zerolog.Logger

	mu    sync.Mutex
	shown []status.Maintenance

	done   []int       // rows since the last line of the log, by table
	logged []time.Time // when that was
}

const (
	lookEvery  = time.Second      // at whether the slot is held
	retryAfter = 10 * time.Second // at least, when something was in the way
	logEvery   = 30 * time.Second // at most, while rows are done
)

// NewLoop makes a loop. holds reports whether the process holds the slot, and else why not.
func NewLoop(plan Beside, holds func() (bool, string), log zerolog.Logger) *Loop {
	l := &Loop{plan: plan, holds: holds, log: log, done: make([]int, len(plan.Tables)), logged: make([]time.Time, len(plan.Tables))}
	for _, t := range plan.Tables {
		l.shown = append(l.shown, status.Maintenance{Table: t.Name, Job: plan.Job, Then: t.Then, State: status.JobWaiting, Since: time.Now(), HeldBack: map[string]int{}})
	}
	return l
}

// Status is what the loop shows, one entry a table. It may be called from any goroutine.
func (l *Loop) Status() []status.Maintenance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.shown)
}

// Run ends with ctx. A process that does not hold the slot has no connection open.
func (l *Loop) Run(ctx context.Context) {
	var worker Worker
	closeWorker := func() {
		if worker != nil {
			worker.Close()
			worker = nil
		}
	}
	defer closeWorker()
	defer func() {
		for i := range l.plan.Tables {
			l.progress(i, true)
		}
	}()
	var next time.Time
	for {
		if holds, why := l.holds(); !holds {
			closeWorker()
			for i := range l.plan.Tables {
				l.show(i, status.JobWaiting, why, "")
			}
			next = time.Time{}
		} else if !time.Now().Before(next) {
			pause := l.plan.Every
			var ok bool
			if worker, ok = l.round(ctx, worker); !ok {
				closeWorker() // a connection may be broken
				pause = max(pause, retryAfter)
			}
			next = time.Now().Add(pause)
		}
		if wait(ctx, min(lookEvery, l.plan.Every)) != nil {
			return
		}
	}
}

// round works on each table once, and opens the worker where there is none.
func (l *Loop) round(ctx context.Context, worker Worker) (_ Worker, ok bool) {
	if worker == nil {
		opened, err := l.plan.Open(ctx)
		if err != nil {
			for i := range l.plan.Tables {
				l.failed(ctx, i, err)
			}
			return nil, false
		}
		worker = opened
	}
	ok = true
	for i := range l.plan.Tables {
		if ctx.Err() != nil || !l.table(ctx, worker, i) {
			ok = false
		}
	}
	return worker, ok
}

var errSlotGone = errors.New("this process does not hold the slot any more")

func (l *Loop) table(ctx context.Context, worker Worker, i int) bool {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.mu.Lock()
	rows := l.shown[i].Rows
	l.mu.Unlock()
	count := func(done Done) {
		l.mu.Lock()
		l.done[i] += int(rows + int64(done.Rows) - l.shown[i].Rows)
		l.shown[i].Rows = rows + int64(done.Rows)
		l.mu.Unlock()
		l.progress(i, false)
	}
	done, err := worker.Once(ctx, i, func(done Done) {
		if !l.leaves(i) {
			l.show(i, status.JobWorking, "", "")
		}
		count(done)
		if holds, _ := l.holds(); !holds {
			cancel(errSlotGone)
		}
	})
	count(done)
	l.counted(i, done)
	if !Complete(err) {
		l.failed(ctx, i, err)
		return false
	}
	took := done.Took.Seconds()
	held := map[string]int{}
	for why, n := range map[string]int{status.HeldByLetter: done.Held, status.HeldByOthers: done.Passed} {
		if n > 0 {
			held[why] = n
		}
	}
	l.mu.Lock()
	m := &l.shown[i]
	m.LastPass, m.PassSeconds, m.HeldBack, m.OldestRow = time.Now(), &took, held, done.Oldest
	l.mu.Unlock()
	if err != nil {
		l.show(i, status.JobPaused, Reason(err), err.Error())
	} else {
		l.show(i, status.JobIdle, "", "")
	}
	return true
}

// leaves reports whether the last pass left partitions alone. The job is shown as paused for it, also
// while it works on the others.
func (l *Loop) leaves(i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shown[i].State == status.JobPaused && l.shown[i].Reason == fault.ReasonPartitionUnlogged
}

// counted adds what a pass did beside rows.
func (l *Loop) counted(i int, done Done) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.shown[i]
	m.Exported += done.Bytes
	if done.Others > 0 {
		if m.MarkedByOthers == 0 {
			l.log.Warn().Str("table", m.Table).Str("job", m.Job).Int("rows", done.Others).Msg("somebody else marks rows too: a polling publisher that still runs sends them as well")
		}
		now := time.Now()
		m.MarkedByOthers, m.LastByOthers = m.MarkedByOthers+int64(done.Others), &now
	}
	if p := done.Parts; p != nil {
		removed := int64(p.Removed)
		if m.Partitions != nil {
			removed += m.Partitions.Removed
		}
		m.Partitions = &status.Partitions{Ahead: p.Ahead, Held: p.Held, Removed: removed} // a new one: what was shown stays
		if p.Removed+p.Made > 0 {
			l.log.Info().Str("table", m.Table).Str("job", m.Job).Str("then", m.Then).Int("removed", p.Removed).Int("made", p.Made).Msg("partitions done")
		}
	}
}

// failed shows what is in the way. A stop is nothing that is.
func (l *Loop) failed(ctx context.Context, i int, err error) {
	l.progress(i, true)
	switch {
	case errors.Is(context.Cause(ctx), errSlotGone):
		l.show(i, status.JobWaiting, "", "")
	case ctx.Err() != nil:
	case postgres.KindOf(err) == fault.KindBusy:
		l.show(i, status.JobWaiting, Reason(err), err.Error())
	default:
		l.show(i, status.JobPaused, Reason(err), err.Error())
	}
}

// show changes what is shown, and logs what is in the way once.
func (l *Loop) show(i int, state status.JobState, reason, message string) {
	l.mu.Lock()
	m := &l.shown[i]
	was := *m
	if m.State != state || m.Reason != reason {
		m.Since = time.Now()
	}
	m.State, m.Reason, m.Message = state, reason, message
	l.mu.Unlock()
	switch {
	case state == status.JobPaused && (was.State != state || was.Reason != reason):
		l.log.Warn().Str("table", was.Table).Str("job", was.Job).Str("reason", reason).Str("error", message).Msg("a job on delivered rows is paused; the stream goes on")
	case was.State == status.JobPaused && state != status.JobPaused:
		l.log.Info().Str("table", was.Table).Str("job", was.Job).Str("reason", was.Reason).Msg("a job on delivered rows goes on")
	}
}

// progress logs how many rows were done, now and then.
func (l *Loop) progress(i int, now bool) {
	l.mu.Lock()
	rows := l.done[i]
	if rows == 0 || !now && time.Since(l.logged[i]) < logEvery {
		l.mu.Unlock()
		return
	}
	l.done[i], l.logged[i] = 0, time.Now()
	m := l.shown[i]
	l.mu.Unlock()
	l.log.Info().Str("table", m.Table).Str("job", m.Job).Str("then", m.Then).Int("rows", rows).Msg("rows done")
}

// Reason names what is in the way in one word.
func Reason(err error) string {
	if e, ok := errors.AsType[*sink.Error](err); ok && e.Reason != "" {
		return e.Reason
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return postgres.Reason(err)
	}
	return cmp.Or(postgres.Reason(err), "other")
}
