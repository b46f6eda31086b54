package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/twmb/franz-go/pkg/kgo"
)

// errOvertaken is the failure of a record that became durable out of order.
var errOvertaken = overtakenError{}

type overtakenError struct{}

func (overtakenError) Error() string {
	return "became durable before a failed record of its partition; it is sent again after it"
}

// WrappedBy has the record sent again.
func (overtakenError) WrappedBy(found error) *sink.Error {
	return &sink.Error{Class: sink.Retry, Reason: fault.ReasonOvertaken, Err: found}
}

// noPartitionError is a record whose explicit partition the topic does not have.
type noPartitionError struct{ partition int32 }

func (e *noPartitionError) Error() string {
	return fmt.Sprintf("partition %d does not exist; add partitions to the topic or correct the row's partition column", e.partition)
}

// WrappedBy rejects the record.
func (e *noPartitionError) WrappedBy(found error) *sink.Error {
	return &sink.Error{Class: sink.Rejected, Reason: fault.ReasonInvalidPartition, Err: found}
}

// sizeError is a record that is over the limit of the configuration.
type sizeError struct{ size, limit int }

func (e *sizeError) Error() string {
	return fmt.Sprintf("record takes %d bytes in a batch, the limit is %d; raise kafka.max_message_bytes and restart the relay, and raise max.message.bytes of the topic, or store less in the row", e.size, e.limit)
}

// WrappedBy rejects the record.
func (e *sizeError) WrappedBy(found error) *sink.Error {
	return &sink.Error{Class: sink.Rejected, Reason: fault.ReasonRecordTooLarge, Err: found}
}

// Limit is the one that the record is over.
func (e *sizeError) Limit() (bytes int, key string) { return e.limit, "kafka.max_message_bytes" }

// interruptedError is the error where the caller's context ended.
type interruptedError struct{ err error }

func (e *interruptedError) Error() string {
	return fmt.Sprintf("wait for a producer id, a topic or a partition: %v", e.err)
}
func (e *interruptedError) Unwrap() error { return e.err }

// WrappedBy has the record sent again.
func (e *interruptedError) WrappedBy(found error) *sink.Error {
	return &sink.Error{Class: sink.Retry, Reason: fault.ReasonInterrupted, Err: found}
}

func interrupted(ctx context.Context) error { return &interruptedError{context.Cause(ctx)} }

// failedWithSink reports whether a record failed only because the sink halted or closed.
func failedWithSink(err error) bool {
	return errors.Is(err, errAborted) || errors.Is(err, context.Canceled) ||
		errors.Is(err, kgo.ErrAborting) || errors.Is(err, kgo.ErrClientClosed)
}

// Failure describes the cause of one record's failure.
func (k *Sink) Failure(topic string, err error) sink.Failure {
	if errors.Is(err, sink.ErrHalted) {
		return sink.Failure{Class: sink.Retry, Reason: fault.ReasonHeldBack, Err: sink.ErrHalted}
	}
	if errors.Is(err, sink.ErrClosed) {
		return sink.Failure{Class: sink.Retry, Reason: fault.ReasonClosed, Err: sink.ErrClosed}
	}
	e := broker.Classify(err)
	if e.Reason == fault.ReasonUnknownTopic && k.topics.IsEnabled() {
		e = k.topics.Missing(topic, err)
	}
	return sink.Failure{Class: e.Class, Reason: e.Reason, Err: fmt.Errorf("produce to topic %q: %w", topic, e.Err)}
}
