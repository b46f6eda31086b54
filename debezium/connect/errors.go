package connect

import (
	"errors"
	"fmt"
)

// ErrAbsent is what NewCodec answers for a column that Debezium leaves out of
// the row: to everything that follows the column does not exist.
var ErrAbsent = errors.New("column is not part of the row")

// UnsupportedError is a column whose value Debezium would write and this
// package cannot.
type UnsupportedError struct{ Column, Type, Reason string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("column %q of type %s cannot be written as Debezium does: %s", e.Column, e.Type, e.Reason)
}

// DataError is what Connect throws for a value that does not fit: the cause in
// Connect's words.
type DataError struct{ Cause string }

func (e *DataError) Error() string { return e.Cause }

// DataErrorf makes a DataError.
func DataErrorf(format string, args ...any) error {
	return &DataError{Cause: fmt.Sprintf(format, args...)}
}

// ConvertError is a column value that could not be converted. When Tolerated,
// Debezium writes null in its place and logs a warning
// (event.converting.failure.handling.mode); otherwise the row is refused, which
// a NOT NULL column without a default always is.
type ConvertError struct {
	Column, Type string
	Reason       string // never the value
	Tolerated    bool
}

func (e *ConvertError) Error() string {
	return fmt.Sprintf("column %q: value is not a %s that can be converted: %s", e.Column, e.Type, e.Reason)
}

// OptionError is an option with a bad value, or one that its owner does not have.
type OptionError struct{ Option, Value, Reason string }

func (e *OptionError) Error() string {
	text := e.Reason
	if e.Value != "" {
		text = fmt.Sprintf("%q: %s", e.Value, e.Reason)
	}
	if e.Option != "" {
		text = e.Option + ": " + text
	}
	return text
}
