package relay

import (
	"context"
	"slices"

	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/kafkatx"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Open builds the real parts. It checks the configuration and touches no server. hooks make those
// of each Kafka client.
func Open(cfg Config, ev Events, log zerolog.Logger, hooks ...func() kgo.Hook) (*Relay, error) {
	cfg = cfg.WithDefaults()
	routes, err := router.New(cfg.Router)
	if err != nil {
		return nil, &ConfigError{Err: err}
	}
	var r *Relay
	cfg.Stream.Binary = func(tables []*wal.Relation, from, end wal.LSN) bool {
		return !r.olderTypes.Ahead(from, end) && !slices.ContainsFunc(tables, func(t *wal.Relation) bool { return !routes.BinarySafe(t) })
	}
	if cfg.OnReject == DeadLetterOnReject {
		cfg.Kafka.DeadLetterTopic = cfg.DeadLetterTopic
	}
	build := func() (sink.Sink, error) {
		return OpenSink(cfg, ev, log.With().Str("component", "sink").Logger(), hooks)
	}
	first, err := build()
	if err != nil {
		return nil, &ConfigError{Err: err}
	}
	parts := Parts{
		Router: routes,
		Probe:  watch.NewProbe(cfg.Replication),
		Source: func(ctx context.Context) (Source, error) {
			return replication.Open(ctx, cfg.Replication, cfg.Stream, log.With().Str("component", "replication").Logger())
		},
		Sink: func() (sink.Sink, error) {
			if s := first; s != nil {
				first = nil
				return s, nil
			}
			return build()
		},
	}
	if cfg.KeepsPositions() {
		if parts.Ledger, err = topics.NewLedger(cfg.Kafka.Connection, cfg.CheckpointTopic); err != nil {
			_ = first.Close(context.Background()) // nothing was sent
			return nil, &ConfigError{Err: err}
		}
	}
	if cfg.OnReject == DeadLetterOnReject && cfg.ParkKey {
		parts.Journal = topics.NewFollower(cfg.Kafka.Connection, cfg.DeadLetterTopic, log.With().Str("component", "sink").Logger())
	}
	r = New(cfg, parts, ev, log.With().Str("component", "relay").Logger())
	return r, nil
}

// OpenSink builds the sink of the guarantee. It connects to nothing.
func OpenSink(cfg Config, ev Events, log zerolog.Logger, hooks []func() kgo.Hook) (sink.Sink, error) {
	if cfg.Guarantee != ExactlyOnce {
		return kafka.New(cfg.Kafka, log, hooks...)
	}
	return kafkatx.New(kafkatx.Config{
		Config: cfg.Kafka, CheckpointTopic: cfg.CheckpointTopic, Interval: cfg.CommitInterval,
		// A row takes about twice its record's size of the window. Half of the window is for
		// what is routed while a transaction is being ended.
		MaxBytes: cfg.MaxInFlightBytes / 4, DivideBytes: cfg.MaxInFlightBytes / 4,
		Ended: ev.TransactionEnded,
	}, log, hooks...)
}

// Discard closes what Open made, of a relay that is not run.
func (r *Relay) Discard() {
	if first, err := r.parts.Sink(); err == nil {
		r.sink = first
		r.dropSink()
	}
	if r.parts.Ledger != nil {
		r.parts.Ledger.Close()
	}
	if r.parts.Journal != nil {
		r.parts.Journal.Close()
	}
}
