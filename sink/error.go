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

// WrappedBy returns err, which wraps e, as an error of e's class and reason.
func (e *Error) WrappedBy(err error) *Error {
	return &Error{Class: e.Class, Reason: e.Reason, Err: err}
}

// Classified is an error that knows its class. WrappedBy returns err, which wraps this one, as an
// error of that class and reason.
type Classified interface {
	error
	WrappedBy(err error) *Error
}

// Limited is an error of a record over a limit of the relay's own configuration; Limit names the limit
// and its key.
type Limited interface {
	error
	Limit() (bytes int, key string)
}
