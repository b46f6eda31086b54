package sink

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
)

// Error is a failure that concerns the brokers, with what has to happen next.
type Error struct {
	Class  Class
	Reason string // snake_case, as in Failure
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Classified is an error that knows its class. Classify is given the error that it was
// found in.
type Classified interface {
	error
	Classify(found error) *Error
}

// Limited is an error about a record that is over a limit of the relay's configuration, and not of the
// brokers': the key that has the limit is named.
type Limited interface {
	error
	Limit() (bytes int, key string)
}

// WhenUp is the next step where brokers cannot be reached and the error has none.
func WhenUp(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Class != Retry || e.Reason != fault.ReasonNetwork {
		return err
	}
	if _, next := advice.Split(err); next != "" {
		return err
	}
	return fmt.Errorf("%w; start the brokers, or correct kafka.brokers, and repeat it: `cdc-relay check` says which of them answer", err)
}
