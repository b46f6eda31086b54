package kafka

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What a sink that produces in transactions shares with this one. It holds a Sink of this package, to which
// it gives no records: for whether brokers answer, for topics, incidents and options.

// NewRecord makes the client's record of ours, for a client with a partitioner of
// NewPartitioner.
func NewRecord(to *kgo.Record, from *record.Record, now time.Time) {
	ctx := context.Background()
	if from.Partition != record.AutoPartition {
		ctx = &partitionContext{Context: ctx, partition: from.Partition}
	}
	fillRecord(ctx, to, from, now)
}

// Cause is why a record of NewRecord was not acknowledged: ErrHalted where that has
// nothing to do with the record.
func Cause(r *kgo.Record, err error) error {
	if c, ok := r.Context.(*partitionContext); ok && c.missing {
		return &noPartitionError{partition: c.partition}
	}
	if failedWithSink(err) {
		return sink.ErrHalted
	}
	return err
}

// partitionContext is the context of a record that names its partition. Contexts of
// records never end: one that did would fail the records beside it.
type partitionContext struct {
	context.Context
	partition int32
	missing   bool // the topic does not have it; written before the promise runs
}

var _ explicitPartition = (*partitionContext)(nil)

// Explicit is the partition that the record names.
func (c *partitionContext) Explicit() (partition int32, ok bool) { return c.partition, true }

// Missing fails the record.
func (c *partitionContext) Missing() { c.missing = true }

// Client is the client at present. A failure may replace it.
func (k *Sink) Client() *kgo.Client { return k.client.Load().Client }

// TopicCreator makes missing topics.
func (k *Sink) TopicCreator() *topics.Creator { return k.topics }

// ConnectionFailure is why a connection last failed, nil once any broker has answered after
// it.
func (k *Sink) ConnectionFailure() error { return k.reach.Cause() }
