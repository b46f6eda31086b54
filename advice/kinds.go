package advice

// Errors of commands, by who has to act. The program gives each kind its exit code.

// Usage is a command line that makes no sense.
type Usage struct{ Err error }

func (e *Usage) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Usage) Unwrap() error { return e.Err }

// Input is a file that cannot be used; it says where and why, and the usage of
// the command has no more to add.
type Input struct{ Err error }

func (e *Input) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Input) Unwrap() error { return e.Err }

// Refused is a server that refuses what a command other than run asks for.
type Refused struct{ Err error }

func (e *Refused) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Refused) Unwrap() error { return e.Err }
