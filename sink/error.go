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

// Classify returns err, which wraps e, as an error of e's class and reason.
func (e *Error) Classify(err error) *Error {
	return &Error{Class: e.Class, Reason: e.Reason, Err: err}
}

// Classified is an error that knows its class. Classify returns err, which wraps this one, as an
// error of that class and reason.
type Classified interface {
	error
	Classify(err error) *Error
}

// Limited is an error of a record over a limit of the relay's own configuration; Limit names the limit
// and its key.
type Limited interface {
	error
	Limit() (bytes int, key string)
}
