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

// Classified is an error that knows its class. Classify is given the error that it was
// found in.
type Classified interface {
	error
	Classify(found error) *Error
}
