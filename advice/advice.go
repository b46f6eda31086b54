package advice

import (
	"errors"
	"strings"
)

// Error is a cause with its next step. Its text has both, and the block where there is one.
type Error struct {
	Cause error
	Next  string // one line
	Block string // configuration to paste that makes the next step an example; may be empty
}

// Give adds the next step to a cause.
func Give(cause error, next string) error { return &Error{Cause: cause, Next: next} }

func (e *Error) Error() string {
	text := e.Cause.Error()
	if e.Next != "" {
		text = strings.TrimSuffix(text, ".") + "; " + e.Next
	}
	if e.Block != "" {
		text += ", for example\n" + e.Block
	}
	return text
}

func (e *Error) Unwrap() error { return e.Cause }

// Advised is an error that keeps its next step apart from its cause.
type Advised interface {
	error
	Apart() (seen, next string)
}

// Split takes an error apart into what was seen and what to do, which may be empty. An error
// that does not keep them apart has its next step behind the first "; ".
func Split(err error) (seen, next string) {
	if e, ok := errors.AsType[Advised](err); ok {
		return e.Apart()
	}
	if e, ok := errors.AsType[*Error](err); ok {
		if seen, ok := strings.CutSuffix(err.Error(), "; "+e.Next); ok {
			return seen, e.Next // either may have a "; " of its own
		}
	}
	seen, next, _ = strings.Cut(err.Error(), "; ")
	return seen, next
}
