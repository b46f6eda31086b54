package kafkatx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Open shuts out whoever else has the transactional id, and returns the value of the
// last checkpoint that was committed under the key, nil when there is none. The error
// is a *sink.Error.
//
// The order is the argument. A new epoch aborts what the predecessor left open and
// refuses what it still tries, but a commit of it that was on its way may have
// counted. So the topic is read after that, up to a record of our own: whatever
// lies before that record is settled.
func (t *Sink) Open(ctx context.Context, h sink.Holder) ([]byte, error) {
	if err := t.endSession(ctx); err != nil {
		return nil, err
	}
	if err := t.refuseClosed(); err != nil {
		return nil, err
	}
	client, err := t.connect(h.ID)
	if err != nil {
		return nil, &sink.Error{Class: sink.Blocked, Reason: fault.ReasonKafkaError, Err: err}
	}
	value, err := t.takeOver(ctx, client, h)
	if err != nil {
		client.Close()
		return nil, t.opening(ctx, h.ID, err)
	}
	session := newProducerSession(t, client, h)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		client.Close()
		return nil, &sink.Error{Class: sink.Retry, Reason: fault.ReasonClosed, Err: sink.ErrClosed}
	}
	t.session = session
	go session.run()
	return value, nil
}

// endSession ends the producer session that is open.
func (t *Sink) endSession(ctx context.Context) error {
	t.mu.Lock()
	last := t.session
	t.session = nil
	t.mu.Unlock()
	if last == nil {
		return nil
	}
	if err := last.end(ctx, sink.ErrHalted); err != nil {
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonClosed, Err: err}
	}
	return nil
}

// refuseClosed is the error of a sink that is closed, else nil.
func (t *Sink) refuseClosed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonClosed, Err: sink.ErrClosed}
	}
	return nil
}

// fillTime is how long a batch waits for more records. The end of a transaction does not
// wait: it is flushed.
const fillTime = 15 * time.Millisecond

func (t *Sink) connect(id string) (*client, error) {
	opts, err := t.Options()
	if err != nil {
		return nil, err
	}
	c := new(client)
	starts := func(topic string) {
		t.Topics.Use(topic)
		c.meet(topic)
	}
	c.Client, err = kgo.NewClient(append(opts, kgo.RecordPartitioner(producer.NewPartitioner(starts)),
		kgo.ProducerLinger(cmp.Or(t.cfg.Linger, fillTime)), kgo.TransactionalID(id), kgo.TransactionTimeout(t.cfg.Timeout), kgo.RetryBackoffFn(retryPause))...)
	if err != nil {
		return nil, fmt.Errorf("configure kafka client: %w", err)
	}
	return c, nil
}

// retryPause is short at first: brokers that are still ending the last transaction
// refuse the next one's records for some milliseconds.
func retryPause(tries int) time.Duration {
	pause := min(20*time.Millisecond<<min(max(tries, 1)-1, 10), 2500*time.Millisecond)
	return pause/2 + rand.N(pause)
}

// opening describes a failure of Open.
func (t *Sink) opening(ctx context.Context, id string, err error) error {
	if cause := t.Reach.Cause(); cause != nil && ctx.Err() != nil {
		err = cause // a deadline says less
	}
	if e, ok := errors.AsType[*sink.Error](err); ok {
		return e
	}
	if errors.Is(err, kerr.InvalidTransactionTimeout) {
		return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonTransactionTimeoutRefused, Err: advice.Give(fmt.Errorf("open transactional producer: %w", err), fmt.Sprintf("raise transaction.max.timeout.ms of the brokers to %s or more", t.cfg.Timeout))}
	}
	e := t.classify(err, 0)
	err = fmt.Errorf("open transactional producer %q: %w", id, e.Err)
	if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		err = fmt.Errorf("%w: %s", err, topics.GrantTransactions(id, "literal"))
	}
	return &sink.Error{Class: e.Class, Reason: e.Reason, Err: err}
}

func (t *Sink) takeOver(ctx context.Context, client *client, h sink.Holder) ([]byte, error) {
	if err := t.fence(ctx, client); err != nil {
		return nil, err
	}
	at, err := t.commitOpening(ctx, client, h.Key)
	if err != nil {
		return nil, err
	}
	return t.last(ctx, h.Key, at)
}

// fence asks for a new epoch until the brokers give one: while they settle the
// predecessor's transaction they do not. An answer without a meaning ends the try, as
// the client would keep to it.
func (t *Sink) fence(ctx context.Context, client *client) error {
	for {
		_, _, err := client.ProducerID(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil: // the client then says that it is closed
			return fmt.Errorf("the brokers gave no producer id: %w", context.Cause(ctx))
		}
		if known, answered := errors.AsType[*kerr.Error](err); t.classify(err, 0).Class != sink.Retry || answered && !known.Retriable && known != kerr.ConcurrentTransactions {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// openings are the keys of the records that say where a producer session began.
const openings = "opened by "

// commitOpening commits a record of its own and returns its offset. It has no value, so that
// compaction removes it in time.
func (t *Sink) commitOpening(ctx context.Context, client *client, key string) (int64, error) {
	if err := client.BeginTransaction(); err != nil {
		return 0, err
	}
	rec := &kgo.Record{Topic: t.cfg.CheckpointTopic, Key: []byte(openings + key), Context: context.Background()}
	outcome := make(chan error, 1)
	client.Produce(context.Background(), rec, func(_ *kgo.Record, err error) { outcome <- err })
	select {
	case err := <-outcome:
		if err != nil {
			return 0, &checkpointError{t.cfg.CheckpointTopic, err}
		}
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err := client.commit(ctx); err != nil {
		return 0, &commitError{err}
	}
	return rec.Offset, nil
}

// last is the newest value under the key before an offset that is committed.
func (t *Sink) last(ctx context.Context, key string, end int64) ([]byte, error) {
	return topics.LastCheckpoint(ctx, t.cfg.Connection, t.cfg.CheckpointTopic, key, end, t.cfg.Timeout)
}
