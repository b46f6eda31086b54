package outbox

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNoTransaction is for a Write into what is no transaction, as the event could commit
// without the change that it announces.
var ErrNoTransaction = errors.New("write events: this is no transaction; begin one, and give that")

// EventError is an event that was not written, because the relay could not send it or the
// table could not hold it. Nothing was sent to the server. No part of the event is in it.
type EventError struct {
	Index  int    // place in Write's arguments
	Field  string // of Event, in lower case: payload, aggregate type, …
	Reason string
	Err    error // of Config.Encode; nil for all else
}

func (e *EventError) Error() string {
	return fmt.Sprintf("write event %d: %s: %s", e.Index+1, e.Field, e.Reason)
}

func (e *EventError) Unwrap() error { return e.Err }

// DuplicateError is for events whose idempotency keys, or ids, were written before. Those
// were not written again, the others were, and the transaction is usable: roll back, if what
// it does was done already, or commit.
type DuplicateError struct {
	Indexes []int // places in Write's arguments
}

func (e *DuplicateError) Error() string {
	places := make([]string, 0, 4)
	for _, i := range e.Indexes {
		if len(places) == cap(places)-1 && len(e.Indexes) > cap(places) {
			places = append(places, fmt.Sprintf("%d more", len(e.Indexes)-len(places)))
			break
		}
		places = append(places, fmt.Sprint(i+1))
	}
	return fmt.Sprintf("write events: written before: event %s; roll back, if this transaction repeats one, or commit without", strings.Join(places, ", "))
}

// TableError is what the server said to a statement. The transaction is aborted: roll back.
// Its text has the server's words only where they cannot have values of a row.
type TableError struct {
	Table string
	Code  string // SQLSTATE
	Err   error  // of the driver
}

func (e *TableError) Error() string {
	text := fmt.Sprintf("write to %s: SQLSTATE %s", e.Table, e.Code)
	if class := e.Code[:2]; class != "22" && class != "23" && class != "P0" {
		text += ": " + e.Err.Error()
	}
	if next := nextSteps[e.Code]; next != "" {
		text += "; " + next
	}
	return text
}

func (e *TableError) Unwrap() error { return e.Err }

var nextSteps = map[string]string{
	"42P01": "there is no such table: `cdc-relay setup --create-table` makes one, or set Config.Table",
	"42703": "the table lacks a column of the shape: set Config.Shape to the columns that it has",
	"42804": "a column has another type than in the shape: set Config.Shape to the types that it has",
	"42501": "the role may not: GRANT INSERT on the table; with idempotency keys SELECT too, with DeleteRow SELECT and DELETE",
	"25006": "the transaction is read only, or the server is a standby: write to the primary",
	"22P02": "a value does not have the form of its column's type: compare Config.Shape with the table",
	"22001": "a value is longer than its column: compare Config.Shape with the table",
	"22021": "a value has a character that the database's encoding does not have",
	"22P05": "a value has a character that the database's encoding does not have",
	"23505": "a value is there already that must be unique: give the event an id or an idempotency key, and Write skips it",
	"23502": "a column that the shape does not have, or has as nullable, is NOT NULL: compare Config.Shape with the table",
	"23514": "a CHECK of the table refuses the row",
	"42P02": "the arguments did not arrive: give SQL the *sql.Tx itself",
	"25P02": "a statement before this one failed: roll back",
	"40001": "run the whole transaction again",
	"40P01": "run the whole transaction again",
	"54000": "an index cannot hold a value that long, such as an idempotency key: hash it with outbox.Key",
	"53100": "the server's disk is full",
}

// The modules inbox and outbox are released apart, and neither may import the other. So they have
// Retryable, sqlState and SQL (tx.go) twice.

// Retryable reports whether the whole transaction may be run again because another one was in its
// way: a serialization failure or a deadlock. In REPEATABLE READ and SERIALIZABLE a concurrent
// writer of the same idempotency key ends in one.
func Retryable(err error) bool {
	code := sqlState(err)
	return code == "40001" || code == "40P01"
}

// sqlState is the code that the server gave; empty for an error that is not the server's.
func sqlState(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) && len(coded.SQLState()) == 5 {
		return coded.SQLState()
	}
	return ""
}

// explained wraps an error of a statement.
func (w *Writer) explained(err error) error {
	if errors.Is(err, ErrNoTransaction) {
		return err
	}
	if code := sqlState(err); code != "" {
		return &TableError{Table: w.name, Code: code, Err: err}
	}
	return fmt.Errorf("write to %s: %w", w.name, err)
}
