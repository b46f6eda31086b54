package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Ledger keeps values under keys in the checkpoint topic, without transactions: a
// relay writes there how far it may confirm before it does. It has a client of its
// own, so that trouble with that topic is no trouble for records. It is safe for
// concurrent use.
type Ledger struct {
	cfg    KafkaConfig
	topic  string
	client *kgo.Client
	turn   chan struct{} // one token, out while a write is not answered
}

// NewLedger checks the configuration and connects to nothing.
func NewLedger(cfg KafkaConfig, topic string) (*Ledger, error) {
	client, err := cfg.consumer(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.UnknownTopicRetries(unknownTries))
	if err != nil {
		return nil, err
	}
	l := &Ledger{cfg: cfg, topic: topic, client: client, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l, nil
}

// Close gives the connections up. A Write that waits ends with an error.
func (l *Ledger) Close() { l.client.Close() }

// Read returns the newest value of each key with this suffix, without those that were
// taken back. It reads the whole topic, which compaction keeps small. The error is
// a *Error.
func (l *Ledger) Read(ctx context.Context, suffix string) (map[string][]byte, error) {
	admin := kadm.NewClient(l.client)
	if err := checkpointTopic(ctx, admin, l.topic); err != nil {
		return nil, l.failure("read", err)
	}
	first, err := admin.ListStartOffsets(ctx, l.topic)
	if err != nil {
		return nil, l.failure("read", err)
	}
	// The high watermark: nothing here is part of a transaction, and one that is open
	// must not hide anything.
	last, err := admin.ListEndOffsets(ctx, l.topic)
	if err != nil {
		return nil, l.failure("read", err)
	}
	from, _ := first.Lookup(l.topic, 0)
	end, ok := last.Lookup(l.topic, 0)
	if err := errors.Join(from.Err, end.Err); !ok || err != nil {
		return nil, l.failure("read", err)
	}
	values := make(map[string][]byte)
	if from.Offset >= end.Offset {
		return values, nil
	}
	reader, err := l.cfg.consumer(kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: {0: kgo.NewOffset().At(from.Offset)}}))
	if err != nil {
		return nil, l.failure("read", err)
	}
	defer reader.Close()
	for next := from.Offset; next < end.Offset; {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, l.failure("read", context.Cause(ctx))
		}
		for _, e := range fetches.Errors() {
			return nil, l.failure("read", e.Err)
		}
		for records := fetches.RecordIter(); !records.Done(); {
			r := records.Next()
			next = r.Offset + 1
			switch {
			case r.Attrs.IsControl() || !strings.HasSuffix(string(r.Key), suffix):
			case r.Value == nil:
				delete(values, string(r.Key))
			default:
				values[string(r.Key)] = r.Value
			}
		}
	}
	return values, nil
}

// Write returns once all in-sync replicas have the value, or with a *Error; after
// one the value may be there all the same. A nil value takes the key back.
//
// The client gets no context that ends: it would fail the next write with the one that
// was given up. So a write waits for the answer to the one before, whoever gave it up.
func (l *Ledger) Write(ctx context.Context, key string, value []byte) error {
	if ctx.Err() != nil {
		return l.failure("write to", context.Cause(ctx))
	}
	select {
	case <-l.turn:
	case <-ctx.Done():
		return l.failure("write to", context.Cause(ctx))
	}
	outcome := make(chan error, 1)
	l.client.Produce(context.Background(), &kgo.Record{Topic: l.topic, Key: []byte(key), Value: value}, func(_ *kgo.Record, err error) {
		outcome <- err
		l.turn <- struct{}{}
	})
	select {
	case err := <-outcome:
		if err == nil {
			return nil
		}
		return l.failure("write to", err)
	case <-ctx.Done(): // what is on its way to a broker cannot be called back, and its answer may take long
		return l.failure("write to", context.Cause(ctx))
	}
}

func (l *Ledger) failure(what string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return checkpointRefusal(l.topic, err)
	}
	e := classify(err)
	if errors.Is(err, context.Canceled) {
		e = &Error{Retry, "interrupted", err}
	}
	class := e.Class
	if class == Rejected { // there is nobody to set this record aside
		class = Blocked
	}
	return &Error{class, e.Reason, fmt.Errorf("%s checkpoint topic %q: %w", what, l.topic, e.Err)}
}

// Committed returns the newest value that a transaction, or a write without one, left
// under a key; nil when there is none, or it was taken back. It waits for transactions
// that are open: one of them may be about to commit a newer value, which whoever
// committed it has acted upon before readers see it. The error is a *Error.
func (l *Ledger) Committed(ctx context.Context, key string) ([]byte, error) {
	admin := kadm.NewClient(l.client)
	if err := checkpointTopic(ctx, admin, l.topic); err != nil {
		return nil, l.failure("read", err)
	}
	last, err := admin.ListEndOffsets(ctx, l.topic) // the high watermark: behind what is still open
	if err != nil {
		return nil, l.failure("read", err)
	}
	end, ok := last.Lookup(l.topic, 0)
	if !ok || end.Err != nil {
		return nil, l.failure("read", end.Err)
	}
	starts, err := admin.ListStartOffsets(ctx, l.topic)
	if err != nil {
		return nil, l.failure("read", err)
	}
	from, _ := starts.Lookup(l.topic, 0)
	if from.Err != nil {
		return nil, l.failure("read", from.Err)
	}
	if from.Offset >= end.Offset {
		return nil, nil
	}
	reader, err := l.cfg.consumer(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: {0: kgo.NewOffset().At(from.Offset)}}))
	if err != nil {
		return nil, l.failure("read", err)
	}
	defer reader.Close()
	var value []byte
	for next := from.Offset; next < end.Offset; {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, &Error{Retry, ReasonCheckpointHidden, fmt.Errorf("read checkpoint topic %q: %w at offset %d of %d; an open transaction hides what follows until it ends", l.topic, context.Cause(ctx), next, end.Offset)}
		}
		for _, e := range fetches.Errors() {
			return nil, l.failure("read", e.Err)
		}
		for records := fetches.RecordIter(); !records.Done(); {
			r := records.Next()
			next = r.Offset + 1
			if !r.Attrs.IsControl() && string(r.Key) == key {
				value = r.Value
			}
		}
	}
	return value, nil
}
