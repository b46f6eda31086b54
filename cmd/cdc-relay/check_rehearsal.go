package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
)

// Whether a relay streams from a slot, given what the checkpoint topic says of it, the
// relay itself decides at its start. A rehearsal is such a start, of a relay whose
// server and brokers are what was read of them: there is one rule, and nothing is
// taken or written.

// written reads what the checkpoint topic says of a slot to a relay with that
// guarantee: its values by key. Read the slot first, as a relay moves the topic before
// the slot: the other way round one that is at work looks like a gap.
func written(ctx context.Context, ledger *sink.Ledger, g relay.Guarantee, system, slot string) (map[string][]byte, error) {
	if g != relay.ExactlyOnce {
		return ledger.Read(ctx, checkpoint.IntentSuffix(system, slot))
	}
	key := checkpoint.Key(system, slot)
	value, err := ledger.Committed(ctx, key)
	if err != nil || value == nil {
		return nil, err
	}
	return map[string][]byte{key: value}, nil
}

// rehearse returns how far a relay that starts now would know the slot to be confirmed,
// or why it would not stream from it.
func rehearse(ctx context.Context, cfg relay.Config, origin replication.Origin, start pglogrepl.LSN, known map[string][]byte) (pglogrepl.LSN, error) {
	routes, err := router.New(cfg.Router)
	if err != nil {
		return 0, err
	}
	cfg.OnReject, cfg.PositionHeaders = relay.StopOnReject, false // neither has a say in it
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	paper := &paperTopic{known: known, key: checkpoint.Key(origin.SystemID, cfg.Replication.Slot)}
	parts := relay.Parts{
		Router: routes,
		Source: func(context.Context) (relay.Source, error) { return &paperSlot{origin, start}, nil },
		Sink:   func() (sink.Sink, error) { return &paperSink{topic: paper}, nil },
	}
	if cfg.Guarantee != relay.ExactlyOnce {
		parts.Ledger = paper
	}
	began, later := false, error(nil)
	err = relay.New(cfg, parts, relay.Events{
		SessionStarted: func(pglogrepl.LSN) { began = true; cancel() },
		Reconnecting:   func(_ string, err error) { later = err; cancel() }, // what it would try again
	}, zerolog.Nop()).Run(ctx)
	switch refused, ok := errors.AsType[*relay.RefusedError](err); {
	case ok:
		return 0, refused.Err
	case err != nil:
		return 0, err
	case later != nil:
		return 0, later
	case !began:
		return 0, context.Cause(ctx)
	}
	return paper.end()
}

// paperSlot is a slot that has nothing to stream.
type paperSlot struct {
	origin replication.Origin
	start  pglogrepl.LSN
}

func (s *paperSlot) Start() pglogrepl.LSN                       { return s.start }
func (s *paperSlot) Origin() replication.Origin                 { return s.origin }
func (s *paperSlot) Tables() []*replication.Relation            { return nil }
func (s *paperSlot) Received() pglogrepl.LSN                    { return s.start }
func (s *paperSlot) ServerEnd() pglogrepl.LSN                   { return s.start }
func (s *paperSlot) Silent() time.Duration                      { return 0 }
func (s *paperSlot) Abort()                                     {}
func (s *paperSlot) Lost() <-chan struct{}                      { return nil }
func (s *paperSlot) Close(context.Context, pglogrepl.LSN) error { return nil }
func (s *paperSlot) Run(context.Context, chan<- *replication.Batch, func() pglogrepl.LSN) error {
	return nil
}

// paperTopic has what was read from the checkpoint topic, and what the relay would
// write to it.
type paperTopic struct {
	known map[string][]byte
	key   string // of the slot's checkpoint with exactly-once

	mu  sync.Mutex
	own []byte
}

func (t *paperTopic) Read(_ context.Context, suffix string) (map[string][]byte, error) {
	found := make(map[string][]byte)
	for key, value := range t.known {
		if strings.HasSuffix(key, suffix) {
			found[key] = value
		}
	}
	return found, nil
}

func (t *paperTopic) Write(_ context.Context, _ string, value []byte) error {
	if value != nil { // else it would take back another holder's
		t.mu.Lock()
		defer t.mu.Unlock()
		t.own = value
	}
	return nil
}

func (t *paperTopic) Close() {}

// end is that of what the relay goes by: what it would write, else what it found.
func (t *paperTopic) end() (pglogrepl.LSN, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	value := t.own
	if value == nil {
		value = t.known[t.key]
	}
	rec, err := checkpoint.ParseRecord(value)
	return rec.End, err
}

// paperSink is never sent anything.
type paperSink struct {
	relay.TransactionalSink // of which only what follows is called
	topic                   *paperTopic
}

func (s *paperSink) Open(ctx context.Context, h sink.Holder) ([]byte, error) {
	return s.topic.known[h.Key], ctx.Err()
}
func (s *paperSink) Send(_ context.Context, _ []router.Record, done func(error)) { done(nil) }
func (s *paperSink) Mark(m sink.Mark)                                            { _ = s.topic.Write(context.Background(), "", m.Value) }
func (s *paperSink) Finish(done func(error))                                     { done(nil) }
func (s *paperSink) Ready(context.Context) error                                 { return nil }
func (s *paperSink) Reachable() error                                            { return nil }
func (s *paperSink) Halt()                                                       {}
func (s *paperSink) Resume()                                                     {}
func (s *paperSink) Close(context.Context) error                                 { return nil }
