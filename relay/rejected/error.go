package rejected

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// DeliveryError is the failure of a record, with its row.
type DeliveryError struct {
	Reason string
	Table  string // schema.name
	LSN    wal.LSN
	wal.Place
	Err error
}

// NotDelivered is the error of a row's record that is not delivered.
func NotDelivered(reason string, err error, row *wal.Row) *DeliveryError {
	return &DeliveryError{Reason: reason, Table: row.Relation.Qualified(), LSN: row.LSN, Place: row.Place(), Err: err}
}

// Named is the error of a rejected row with the row's position in it.
func Named(reason, table string, row wal.Place, err error) error {
	if _, routed := errors.AsType[*record.RowError](err); routed { // it names the row
		return err
	}
	if _, blocked := errors.AsType[*DeliveryError](err); blocked {
		return err
	}
	return &DeliveryError{Reason: reason, Table: table, Place: row, Err: err}
}

func (e *DeliveryError) Error() string {
	at := e.Table
	if e.LSN != 0 {
		at += ", row LSN " + e.LSN.String()
	}
	return fmt.Sprintf("deliver row %d of the transaction committing at %s (%s): %v", e.Ordinal, e.Commit, at, e.Err)
}

func (e *DeliveryError) Unwrap() error { return e.Err }

// BlockedAtRowError ends a session with exactly-once at a row that only a person can get past.
type BlockedAtRowError struct {
	Reason string
	Err    error
}

func (e *BlockedAtRowError) Error() string { return e.Err.Error() }
func (e *BlockedAtRowError) Unwrap() error { return e.Err }

// ReasonOf is the reason of a row that the router refuses.
func ReasonOf(rejection error) string {
	if row, ok := errors.AsType[*record.RowError](rejection); ok {
		return row.Reason
	}
	if errors.Is(rejection, deadletter.ErrFull) {
		return fault.ReasonParkedKeysFull
	}
	return fault.ReasonMapping
}

// SetupMakes adds to the error of a missing dead-letter topic which command makes it.
func SetupMakes(reason string, err error) error {
	if reason != fault.ReasonUnknownTopic {
		return err
	}
	return fmt.Errorf("%w; it is the dead-letter topic; `cdc-relay setup` creates it", err)
}
