package record

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// RowError is a row that the mapping cannot turn into a record. It is
// deterministic: the same row fails again under the same configuration.
// It never holds column values other than the (escaped, shortened) topic name.
type RowError struct {
	Reason  string
	Table   string // schema.name
	Column  string // empty when no single column is at fault
	LSN     wal.LSN
	Commit  wal.LSN
	Ordinal uint64
	Err     error
}

func (e *RowError) Error() string {
	at := e.Table
	if e.Column != "" {
		at += "." + e.Column
	}
	if e.Commit == 0 { // read from the table: no transaction is known of it
		return fmt.Sprintf("route row of table %s: %v", at, e.Err)
	}
	return fmt.Sprintf("route row %d of the transaction committing at %s (%s, row LSN %s): %v", e.Ordinal, e.Commit, at, e.LSN, e.Err)
}

func (e *RowError) Unwrap() error { return e.Err }

// ColumnError is a ConfigError's cause that concerns one column of a table.
type ColumnError struct {
	Column string
	Err    error
}

func (e *ColumnError) Error() string { return e.Err.Error() }

func (e *ColumnError) Unwrap() error { return e.Err }

// rejection is why a row gives no record, before the row is named.
type rejection struct {
	reason string
	column string
	what   string
	cause  error // a sentinel, or nil
}

func (r *rejection) Error() string { return r.what }

func (r *rejection) Unwrap() error { return r.cause }

// ErrBinary is the cause when a column arrives in binary whose type has no text
// form that is known exactly: its type changed since the connection was opened.
// The next connection finds the new type in the catalog and asks for text.
var ErrBinary = errors.New("arrives in binary, and its type has no text form that is known exactly; the next connection asks for text")

// RejectBinary is for a value of a column that ErrBinary is the cause of.
func RejectBinary(column string) error {
	return &rejection{reason: fault.ReasonSchema, column: column, what: fmt.Sprintf("column %q %v", column, ErrBinary), cause: ErrBinary}
}

// Reject explains why a row gives no record, for one of the reasons; an empty column
// blames none.
func Reject(reason, column, format string, args ...any) error {
	return &rejection{reason: reason, column: column, what: fmt.Sprintf(format, args...)}
}

// RejectFor is Reject for an error that says what to do.
func RejectFor(reason, column string, cause error) error {
	return &rejection{reason: reason, column: column, what: cause.Error(), cause: cause}
}

// NewRowError names the row that err rejects.
func NewRowError(row *wal.Row, err error) *RowError {
	e := &RowError{Reason: fault.ReasonMapping, LSN: row.LSN, Ordinal: row.Ordinal, Err: err}
	if row.Txn != nil {
		e.Commit = row.Place().Commit // who gives the row up moves the slot past that
	}
	if row.Relation != nil {
		e.Table = row.Relation.Qualified()
	}
	if r, ok := errors.AsType[*rejection](err); ok {
		e.Reason, e.Column = r.reason, r.column
	} else if c, ok := errors.AsType[*ColumnError](err); ok {
		e.Reason, e.Column = fault.ReasonSchema, c.Column
	}
	return e
}
