package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// drift is a change of the publication, a table or the slot while the relay ran. Rows that were
// written meanwhile may be missing from the stream without a trace, also after the change is undone.
// So the process confirms nothing more. Only a restart, by somebody who has dealt with the gap, ends it.
type drift struct {
	error
	since wal.LSN // end of the WAL at the last look that saw no change; zero: not known
}

func (d *drift) Error() string {
	when := "meanwhile"
	if d.since != 0 {
		when = fmt.Sprintf("after %s", d.since)
	}
	switch postgres.Reason(d.error) {
	case fault.ReasonSlotLost, fault.ReasonSlotMissing, fault.ReasonPublicationMissing: // their errors say what to do
		return d.error.Error()
	}
	return d.error.Error() + "; rows written " + when + " may be missing from the stream: look for them, then restart the relay"
}

func (d *drift) Unwrap() error { return d.error }

// noteDrift remembers a session that ended at a drift, in the ledger too: none comes after it.
func (r *Relay) noteDrift(ctx context.Context, err error) {
	if err != nil && r.streamed.Load() && postgres.KindOf(err) == fault.KindDrift {
		r.drift.CompareAndSwap(nil, &drift{error: err})
		r.doubts.Write(ctx, r.parts.Ledger, r.known.Origin.SystemID, r.cfg.Replication.Slot, r.cfg.Version, r.log)
	}
}

// slotTaken reports that another relay streams from the slot. Nobody else can move a slot while this
// relay streams from it, so an active slot that is ahead is another's. A relay that was suspended
// learns it here too.
func (s *session) slotTaken(snapshot *watch.Snapshot) error {
	if reported := wal.LSN(s.reported.Load()); !snapshot.Slot.Active || snapshot.Slot.Confirmed <= reported {
		return nil
	}
	return &fault.Error{
		Kind: fault.KindRetry, Reason: fault.ReasonSlotInUse, Op: "watch", Subject: fmt.Sprintf("slot %q", s.relay.cfg.Replication.Slot), LSN: snapshot.Slot.Confirmed,
		Err: errors.New("another consumer streams from it and has confirmed more than this relay"),
	}
}

// slotMoved reports that the slot, which nobody has, is ahead of every position that this relay
// reported: somebody moved it, and the rows in between may never come.
func (s *session) slotMoved(snapshot *watch.Snapshot) error {
	reported := wal.LSN(s.reported.Load())
	if snapshot.Slot.Active || snapshot.Slot.Confirmed <= reported {
		return nil
	}
	return &fault.Error{
		Kind: fault.KindDrift, Reason: fault.ReasonSlotMoved, Op: "watch", Subject: fmt.Sprintf("slot %q", s.relay.cfg.Replication.Slot), LSN: snapshot.Slot.Confirmed,
		Err:  fmt.Errorf("it was moved to this position while the relay had confirmed %s", reported),
		Hint: "find out who moved it: pg_replication_slot_advance, or a second consumer",
	}
}
