package restore

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/rs/zerolog"
)

// Work is one redrive, or its plan: the command and the console run it.
type Work struct {
	Config   *config.Config
	Settings relay.Config
	Sources  *Sources

	Discard bool
	DryRun  bool
	Halted  func() bool           // asked before each key; nil: never
	Waiting func(deadletter.Wait) // told what is waited for, from another goroutine; nil: nobody is
}

// Run performs the tasks and calls each with the outcome of each piece. needsRows: a dead letter
// has to be completed from its table; the report of the tasks has that. An end before the last
// task is a *deadletter.Stopped.
func (w *Work) Run(ctx context.Context, tasks []deadletter.Task, needsRows bool, each func(deadletter.Outcome)) error {
	history, err := w.history(ctx, tasks, needsRows)
	if err != nil {
		return err
	}
	rows := NewRows(w.Config, w.Settings)
	defer rows.Close()
	r := &deadletter.Redriver{
		Topic: w.Settings.DeadLetterTopic, Discard: w.Discard, DryRun: w.DryRun, Own: w.Sources.Own, Halted: w.Halted, Waiting: w.Waiting, Reserved: w.Settings.Router.Reserved,
		Lost:    func(e *deadletter.Entry) bool { return lost(history, &e.Letter) },
		Restore: rows.Restore,
		ReadLetters: func(ctx context.Context, entries []*deadletter.Entry) (map[deadletter.Location]*deadletter.Letter, error) {
			return deadletter.ReadLetters(ctx, w.Settings.Kafka.Connection, w.Settings.DeadLetterTopic, entries)
		},
	}
	if !w.DryRun {
		sink, err := kafka.New(w.Settings.Kafka, zerolog.Nop())
		if err != nil {
			return err
		}
		defer func() {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = sink.Close(closing) // every outcome is known
		}()
		r.Sink = sink
	}
	return r.Run(ctx, tasks, each)
}

// history tells which rows of own letters a failover lost. A server that cannot be reached is not
// asked where no letter needs its tables: then no source is known to be its own. That is so only in
// a dry run and without a lock.
func (w *Work) history(ctx context.Context, tasks []deadletter.Task, needsRows bool) (history wal.Origin, err error) {
	if w.Discard || !needsRows && !w.Sources.mayOwn(tasks) {
		return history, nil
	}
	if err = w.Sources.Identify(ctx); err != nil && !needsRows && postgres.KindOf(err) == fault.KindRetry {
		return history, nil
	}
	if err == nil {
		history, err = catalog.ReadOrigin(ctx, w.Settings.Replication)
	}
	switch {
	case err == nil:
	case needsRows:
		err = fmt.Errorf("%w; PostgreSQL is needed, because some letters are not complete", err)
	default:
		err = fmt.Errorf("%w; PostgreSQL is asked which rows of letters a failover lost", err)
	}
	return history, err
}

// lost reports whether the server's history does not have the row any more. A row that was read from
// its table has no position in a history: the table tells whether it is there.
func lost(history wal.Origin, l *deadletter.Letter) bool {
	if l.Timeline == 0 || l.FromTable() {
		return false
	}
	began := history.Begin(l.Timeline)
	return history.TimelineOf(l.Commit) != l.Timeline || l.Origin.Began != 0 && began != 0 && l.Origin.Began != began
}
