package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/twmb/franz-go/pkg/kgo"
)

// NoPartitionError is a record whose explicit partition the topic does not have.
type NoPartitionError struct{ Partition int32 }

func (e *NoPartitionError) Error() string {
	return fmt.Sprintf("partition %d does not exist; add partitions to the topic or correct the row's partition column", e.Partition)
}

// WrappedBy rejects the record.
func (e *NoPartitionError) WrappedBy(found error) *sink.Error {
	return &sink.Error{Class: sink.Rejected, Reason: fault.ReasonInvalidPartition, Err: found}
}

// HeldBack reports whether a record failed only because the sink halted or closed.
func HeldBack(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrAborting) || errors.Is(err, kgo.ErrClientClosed)
}

// Failure describes the cause of one record's failure.
func (b *Brokers) Failure(topic string, err error) sink.Failure {
	if errors.Is(err, sink.ErrHalted) {
		return sink.Failure{Class: sink.Retry, Reason: fault.ReasonHeldBack, Err: sink.ErrHalted}
	}
	if errors.Is(err, sink.ErrClosed) {
		return sink.Failure{Class: sink.Retry, Reason: fault.ReasonClosed, Err: sink.ErrClosed}
	}
	e := broker.Classify(err)
	if e.Reason == fault.ReasonUnknownTopic && b.Topics.IsEnabled() {
		e = b.Topics.Missing(topic, err)
	}
	return sink.Failure{Class: e.Class, Reason: e.Reason, Err: fmt.Errorf("produce to topic %q: %w", topic, e.Err)}
}
