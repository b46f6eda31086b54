package kafkatx

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fillRecord makes the client's record of ours.
func fillRecord(to *kgo.Record, from *record.Record, now time.Time) {
	ctx := context.Background()
	if from.Partition != record.AutoPartition {
		ctx = &partitionContext{Context: ctx, partition: from.Partition}
	}
	producer.FillRecord(ctx, to, from, now)
}

// causeOf is why a record was not acknowledged: ErrHalted where that has nothing to do with the
// record.
func causeOf(r *kgo.Record, err error) error {
	if c, ok := r.Context.(*partitionContext); ok && c.missing {
		return &producer.NoPartitionError{Partition: c.partition}
	}
	if producer.HeldBack(err) {
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

var _ producer.ExplicitPartition = (*partitionContext)(nil)

// Explicit is the partition that the record names.
func (c *partitionContext) Explicit() (partition int32, ok bool) { return c.partition, true }

// Missing fails the record.
func (c *partitionContext) Missing() { c.missing = true }
