package restore

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/deadletter"
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
	Halted  func() bool // asked before each key; nil: never
}

// Run performs the tasks and calls each with the outcome of each piece. needsRows: a dead letter
// has to be completed from its table; the report of the tasks has that. An end before the last
// task is a *deadletter.Stopped.
func (w *Work) Run(ctx context.Context, tasks []deadletter.Task, needsRows bool, each func(deadletter.Outcome)) error {
	var history wal.Origin
	if !w.Discard && needsRows {
		err := w.Sources.Identify(ctx)
		if err == nil {
			history, err = catalog.ReadOrigin(ctx, w.Settings.Replication)
		}
		if err != nil {
			return fmt.Errorf("%w; PostgreSQL is needed, because some letters are not complete", err)
		}
	}
	rows := NewRows(w.Config, w.Settings)
	defer rows.Close()
	r := &deadletter.Redriver{
		Topic: w.Settings.DeadLetterTopic, Discard: w.Discard, DryRun: w.DryRun, Own: w.Sources.Own, Halted: w.Halted, Reserved: w.Settings.Router.Reserved,
		Lost:    func(id deadletter.ID) bool { return id.Timeline > 0 && history.TimelineOf(id.Commit) != id.Timeline },
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
