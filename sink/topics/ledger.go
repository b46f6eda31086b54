package topics

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Ledger stores values by key in the checkpoint topic, without transactions. A relay writes there
// how far it may confirm, before it confirms. Its own client keeps failures of that topic away
// from records. It is safe for concurrent use.
type Ledger struct {
	at       broker.Connection
	topic    string
	producer *broker.ClientWithID
	turn     chan struct{} // one token, out while a write is not answered
}

// NewLedger checks the configuration and connects to nothing.
func NewLedger(at broker.Connection, topic string) (*Ledger, error) {
	producer, err := broker.NewClientWithID(func() (*kgo.Client, error) {
		return at.Consumer(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.UnknownTopicRetries(broker.UnknownTries))
	})
	if err != nil {
		return nil, err
	}
	l := &Ledger{at: at, topic: topic, producer: producer, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l, nil
}

// Close gives the connections up. A Write that waits ends with an error.
func (l *Ledger) Close() { l.producer.Close() }

// Read returns the newest value of each key with this suffix, without deleted ones. The values
// are not transactional, so an open transaction hides none. Read reads the whole topic, which
// compaction keeps small. The error is a *sink.Error.
func (l *Ledger) Read(ctx context.Context, suffix string) (map[string][]byte, error) {
	values := make(map[string][]byte)
	err := l.replay(ctx, kgo.ReadUncommitted(), func(key string, value []byte) {
		switch {
		case !strings.HasSuffix(key, suffix):
		case value == nil:
			delete(values, key)
		default:
			values[key] = value
		}
	})
	if err != nil {
		return nil, err
	}
	return values, nil
}

// Committed returns the newest committed value of a key; nil if there is none or it was deleted.
// It waits for open transactions: one of them may commit a newer value on which its writer has
// acted already. The error is a *sink.Error.
func (l *Ledger) Committed(ctx context.Context, key string) (newest []byte, err error) {
	err = l.replay(ctx, kgo.ReadCommitted(), func(k string, value []byte) {
		if k == key {
			newest = value
		}
	})
	if err != nil {
		return nil, err
	}
	return newest, nil
}

// replay has visit see every record up to where the topic ends now, in order.
func (l *Ledger) replay(ctx context.Context, isolation kgo.IsolationLevel, visit func(key string, value []byte)) error {
	next, end, err := l.bounds(ctx)
	if err != nil {
		return l.failure("read", err)
	}
	if next >= end {
		return nil
	}
	reader, err := l.at.Consumer(kgo.FetchIsolationLevel(isolation),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: {0: kgo.NewOffset().At(next)}}))
	if err != nil {
		return l.failure("read", err)
	}
	defer reader.Close()
	for next < end {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil && isolation == kgo.ReadCommitted() {
			return &sink.Error{Class: sink.Retry, Reason: fault.ReasonCheckpointHidden, Err: advice.Give(
				fmt.Errorf("read checkpoint topic %q: %w at offset %d of %d: an open transaction hides what follows", l.topic, context.Cause(ctx), next, end),
				"wait until the brokers end it, at its timeout at the latest, and try again")}
		}
		if ctx.Err() != nil {
			return l.failure("read", context.Cause(ctx))
		}
		for _, e := range fetches.Errors() {
			return l.failure("read", e.Err)
		}
		for records := fetches.RecordIter(); !records.Done(); {
			r := records.Next()
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				visit(string(r.Key), r.Value)
			}
		}
	}
	return nil
}

// bounds returns the topic's first offset and its high watermark, which is also after the
// records of an open transaction.
func (l *Ledger) bounds(ctx context.Context) (first, end int64, err error) {
	admin := kadm.NewClient(l.producer.Current())
	if err := VerifyCheckpointTopic(ctx, admin, l.topic); err != nil {
		return 0, 0, err
	}
	starts, err := admin.ListStartOffsets(ctx, l.topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return 0, 0, err
	}
	ends, err := admin.ListEndOffsets(ctx, l.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, 0, err
	}
	from, _ := starts.Lookup(l.topic, 0)
	to, _ := ends.Lookup(l.topic, 0)
	return from.Offset, to.Offset, nil
}

// Write returns once all in-sync replicas have the value, or with a *sink.Error; the value may be
// there in spite of it. A nil value deletes the key.
//
// The client gets a context that does not end: an ended one would fail the next write as well. So
// a write waits for the answer to the previous one, even if its caller gave up.
func (l *Ledger) Write(ctx context.Context, key string, value []byte) error {
	if ctx.Err() != nil {
		return l.failure("write to", context.Cause(ctx))
	}
	select {
	case <-l.turn:
	case <-ctx.Done():
		return l.failure("write to", context.Cause(ctx))
	}
	client, err := l.producer.Client(ctx)
	if err != nil {
		l.turn <- struct{}{}
		return l.failure("write to", err)
	}
	outcome := make(chan error, 1)
	client.Produce(context.Background(), &kgo.Record{Topic: l.topic, Key: []byte(key), Value: value}, func(_ *kgo.Record, err error) {
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
	if e, ok := errors.AsType[*sink.Error](err); ok {
		return e
	}
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return checkpointRefusal(l.topic, err)
	}
	e := broker.Classify(err)
	if errors.Is(err, context.Canceled) {
		e = &sink.Error{Class: sink.Retry, Reason: fault.ReasonInterrupted, Err: err}
	}
	class := e.Class
	if class == sink.Rejected { // there is nobody to set this record aside
		class = sink.Blocked
	}
	return &sink.Error{Class: class, Reason: e.Reason, Err: fmt.Errorf("%s checkpoint topic %q: %w", what, l.topic, e.Err)}
}
