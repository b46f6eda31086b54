package sink

// Error is a failure that concerns the brokers, with what has to happen next.
type Error struct {
	Class  Class
	Reason string // snake_case, as in Failure
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Classify keeps the class where the error is the cause of another one.
func (e *Error) Classify(found error) *Error {
	return &Error{Class: e.Class, Reason: e.Reason, Err: found}
}

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
