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

// Classify returns an error of the same class and reason with found as its cause: found is the error
// that e was found in.
func (e *Error) Classify(found error) *Error {
	return &Error{Class: e.Class, Reason: e.Reason, Err: found}
}

// Classified is an error that knows its class. Classify returns an error of that class and reason
// with found as its cause: found is the error that this one was found in.
type Classified interface {
	error
	Classify(found error) *Error
}

// Limited is an error of a record over a limit of the relay's own configuration; Limit names the limit
// and its key.
type Limited interface {
	error
	Limit() (bytes int, key string)
}
