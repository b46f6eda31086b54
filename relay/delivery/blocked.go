package delivery

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// wayOut adds how to go on without the row, first what loses nothing. The server skips
// what commits before the position, so it has to lie behind the start of the commit
// record, and everything before the row has to be delivered.
func (d *Delivery) wayOut(commit wal.LSN, reason string, cause error) error {
	cfg, then := &d.m.cfg, ""
	if cfg.KeepsPositions { // else the slot would be ahead of its checkpoint
		then = ", then `cdc-relay setup --accept-gap`"
	}
	return fmt.Errorf("%w; to give up its whole transaction, stop the relay and run: SELECT %s('%s', '%s')%s",
		d.letterWay(reason, cause), status.MoveSlot, cfg.Resume.Slot, commit+1, then)
}

// letterWay adds the part of it that holds also while what lies before the row is not
// delivered yet.
func (d *Delivery) letterWay(reason string, cause error) error {
	if d.m.cfg.OnReject != StopOnReject || reason == record.ReasonSchema { // see setAside
		return cause
	}
	return fmt.Errorf("%w; to have it kept as a dead letter, set relay.on_reject: dead_letter, run `cdc-relay setup` and restart", cause)
}

// RowBlockedError is a record that the brokers refuse, and the row it comes from.
type RowBlockedError struct {
	Reason  string
	Table   string // schema.name
	LSN     wal.LSN
	Commit  wal.LSN // and Ordinal: wal.Row.Place
	Ordinal uint64
	Err     error
}

func (e *RowBlockedError) Error() string {
	return fmt.Sprintf("deliver row %d of the transaction committing at %s (%s, row LSN %s): %v", e.Ordinal, e.Commit, e.Table, e.LSN, e.Err)
}

func (e *RowBlockedError) Unwrap() error { return e.Err }

// setupMakes adds, to a dead-letter topic that is missing, what makes it.
func setupMakes(reason string, err error) error {
	if reason != sink.ReasonUnknownTopic {
		return err
	}
	return fmt.Errorf("%w; it is the dead-letter topic, which `cdc-relay setup` makes", err)
}
