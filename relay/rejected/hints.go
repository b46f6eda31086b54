package rejected

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Hints say how to go on past a row that blocks the relay.
type Hints struct {
	Stops          bool   // relay.on_reject is stop
	KeepsPositions bool   // in the checkpoint topic
	Slot           string // that the advice moves
}

// Past adds how to go on without the row; the advice that loses nothing comes first. The server skips
// what commits before the position, so it has to lie after the start of the commit
// record, and everything before the row has to be delivered.
func (h Hints) Past(commit wal.LSN, reason string, cause error) error {
	then := ""
	if h.KeepsPositions { // else the slot would be ahead of its checkpoint
		then = ", then `cdc-relay setup --accept-gap`"
	}
	return fmt.Errorf("%w; to give up its whole transaction, stop the relay and run: SELECT %s('%s', '%s')%s",
		h.DeadLetter(reason, cause), status.MoveSlot, h.Slot, commit+1, then)
}

// DeadLetter adds the part of the advice that also holds while rows before the row are not
// delivered.
func (h Hints) DeadLetter(reason string, cause error) error {
	switch {
	case reason == fault.ReasonSchema: // a row of a table that changed is not set aside
		return fmt.Errorf("%w; the row has the columns that its table had when it was written: correct outbox in the configuration so that it needs no other column, and restart", cause)
	case !h.Stops:
		return cause
	}
	return fmt.Errorf("%w; to have it kept as a dead letter, set relay.on_reject: dead_letter, run `cdc-relay setup` and restart", cause)
}
