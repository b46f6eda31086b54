package kafka

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
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
