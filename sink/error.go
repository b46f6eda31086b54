package sink

import (
	"errors"
	"strings"
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

// advised is a failure with what to do about it.
type advised struct {
	err  error
	next string
}

// Error ends the cause where the advice begins: the brokers' texts end with a full stop.
func (e *advised) Error() string { return strings.TrimSuffix(e.err.Error(), ".") + "; " + e.next }
func (e *advised) Unwrap() error { return e.err }

// Advise ends an error with what to do about it.
func Advise(err error, next string) error { return &advised{err, next} }

// Told takes an error of this package apart into what was seen and what to do about it,
// which is empty where it does not say.
func Told(err error) (seen, next string) {
	if e, ok := errors.AsType[*advised](err); ok {
		if seen, ok := strings.CutSuffix(err.Error(), "; "+e.next); ok {
			return seen, e.next // either may have a "; " of its own
		}
	}
	seen, next, _ = strings.Cut(err.Error(), "; ")
	return seen, next
}
