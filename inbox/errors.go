package inbox

import (
	"errors"
	"fmt"
)

// ErrNoTransaction is for a claim in what is no transaction: it would commit without the work.
var ErrNoTransaction = errors.New("claim keys: this is no transaction; begin one, and give that")

// ErrNoKey is for an event without a key: nothing shows whether it was handled before.
var ErrNoKey = errors.New("the event has no key; cdc-relay sends each record with the header id")

// TableError is what the server said to a statement of an Inbox. The transaction is aborted: roll
// back. Its text has the server's words only where they cannot have values of a row.
type TableError struct {
	Table  string
	Action string // claim keys, look keys up, mark key as dead, prune keys
	Code   string // SQLSTATE
	Err    error  // of the driver
}

func (e *TableError) Error() string {
	text := fmt.Sprintf("%s: %s: SQLSTATE %s", e.Action, e.Table, e.Code)
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
	"42P01": "there is no such table: `cdc-relay sql --inbox` prints it, or set Config.Schema",
	"42703": "the table lacks a column: compare it with `cdc-relay sql --inbox`",
	"42501": "the role may not: `cdc-relay sql --inbox --role ROLE` prints the grants",
	"25006": "the transaction is read only, or the server is a standby: use the primary",
	"25P02": "a statement before this one failed: roll back",
	"40001": "run the whole transaction again",
	"40P01": "run the whole transaction again",
	"53100": "the server's disk is full",
}

// The modules inbox and outbox are released apart, and neither may import the other. So they have
// Retryable, sqlState and SQL (tx.go) twice.

// Retryable reports whether the whole transaction may be run again because another one was in its
// way: a serialization failure or a deadlock. In REPEATABLE READ and SERIALIZABLE a concurrent
// claim of the same key ends in one.
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

// explained wraps an error of a statement; nil stays nil.
func (b *Inbox) explained(action string, err error) error {
	if err == nil || errors.Is(err, ErrNoTransaction) {
		return err
	}
	if code := sqlState(err); code != "" {
		return &TableError{Table: b.table, Action: action, Code: code, Err: err}
	}
	return fmt.Errorf("%s: %s: %w", action, b.table, err)
}
