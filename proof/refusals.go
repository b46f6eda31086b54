package proof

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Slot is one that every row has to have passed, as the server shows it.
type Slot struct {
	Name      string
	Confirmed wal.LSN // zero: it is still being made
	Lost      string  // why it has no WAL any more; empty: it has
	Active    bool    // somebody streams from it
}

// Kept is what the brokers keep of the configuration's own slots.
type Kept struct {
	Here wal.Origin // of the server, as whoever streams sees it

	// Delivered is, by slot, the position up to which everything is delivered, as the newest
	// record of the topic has it on the server's history. A slot without a record has none.
	Delivered map[string]wal.LSN

	// Before is, by slot, what is known of the table's rows before the slot. It is read
	// together with Delivered, or after it. It has also what the topic has of other pipelines' slots.
	Before map[string]stored.BeforeSlot
}

func refuse(reason, subject, hint, cause string, args ...any) error {
	return &fault.Error{Kind: fault.KindRefused, Reason: reason, Op: "prove rows delivered", Subject: subject, Err: fmt.Errorf(cause, args...), Hint: hint}
}

func subject(slot string) string { return fmt.Sprintf("slot %q", slot) }

// slotsUsable refuses slots that prove nothing, and returns one of those that are behind the
// fence; nil when none is.
func slotsUsable(names []string, slots []Slot, fence wal.LSN) (behind *Slot, err error) {
	if len(names) == 0 {
		return nil, refuse(fault.ReasonSlotMissing, "", "", "no slot is named that rows would have to pass")
	}
	found := make(map[string]*Slot, len(slots))
	for i := range slots {
		found[slots[i].Name] = &slots[i]
	}
	for _, name := range names {
		s := found[name]
		switch {
		case s == nil:
			return nil, refuse(fault.ReasonSlotMissing, subject(name), "rows since its last position are not delivered: keep them, and see the operations guide", "the slot does not exist")
		case s.Lost != "":
			return nil, refuse(fault.ReasonSlotLost, subject(name), "rows since its last position are not delivered: keep them, and see the operations guide", "the slot has lost its WAL (%s)", s.Lost)
		case s.Confirmed < fence && (behind == nil || s.Confirmed < behind.Confirmed):
			behind = s
		}
	}
	return behind, nil
}

// refuseSkipped refuses to take rows for delivered that may have been left out.
func (c *Config) refuseSkipped() error {
	if !c.Skipped || c.SkippedAreDelivered {
		return nil
	}
	return refuse(fault.ReasonRowsSkipped, "", "set maintenance.skipped: treat_as_delivered if they may go as well", "rejected rows are left out (relay.on_reject: skip), and nothing names them")
}

// checkKept refuses slots whose position is not the relay's own work, and rows before a slot of
// which nobody knows. slots were read before kept, and the end of the server's WAL after it: a position
// beyond it is of WAL that the server does not have, and would hide that somebody moved the slot.
func (c *Config) checkKept(on wal.Lineage, slots []Slot, kept *Kept, end wal.LSN) error {
	if kept.Here.Lineage() != on {
		return &fault.Error{
			Kind: fault.KindRetry, Reason: fault.ReasonForeignServer, Op: "prove rows delivered",
			Err:  fmt.Errorf("the rows are on the server with system identifier %s and timeline %d, and the slots on that with %s and %d", on.SystemID, on.Timeline, kept.Here.SystemID, kept.Here.Timeline),
			Hint: "maintenance.url and postgres.url have to lead to the same primary",
		}
	}
	confirmed := make(map[string]wal.LSN, len(slots))
	for _, s := range slots {
		confirmed[s.Name] = s.Confirmed
	}
	for _, name := range c.Slots {
		limit, recorded := kept.Delivered[name]
		if !recorded {
			return c.unknown(name, errors.New("the checkpoint topic has no position of it"))
		}
		if limit > end {
			return refuse(fault.ReasonSlotMoved, subject(name), "start the relay, or run `cdc-relay setup --accept-gap`, and then say whether the rows from before the slot are delivered (`cdc-relay setup --before-slot delivered`)",
				"the relay brought it to %s, and the server's WAL ends at %s: its disk was put back to a copy, or it lost flushed WAL", limit, end)
		}
		if confirmed[name] > limit {
			return refuse(fault.ReasonSlotMoved, subject(name), "find out who moved it: rows in between may never be delivered, so keep them",
				"it is at %s, and the relay brought it to %s at most", confirmed[name], limit)
		}
		if err := c.Before(kept, name, confirmed[name]); err != nil {
			return c.unknown(name, err)
		}
	}
	for _, name := range c.Others {
		if rec, found := kept.Before[name]; found && rec.OID == c.Table && !rec.Before.Known() {
			return refuse(fault.ReasonBeforeSlotUnknown, subject(name), "with the configuration of that pipeline: "+hintBefore,
				"whether its pipeline has delivered the rows from before it is not known: %w", errUnsent)
		}
	}
	return nil
}

// hintBefore is for a slot that exists, so that only a backfill --late may send rows.
const hintBefore = "send them (`cdc-relay backfill --late`) unless they are delivered; then say that they are (`cdc-relay setup --before-slot delivered`)"

func (c *Config) unknown(slot string, err error) error {
	return refuse(fault.ReasonBeforeSlotUnknown, subject(slot), hintBefore, "whether rows from before it are delivered is not known: %w", err)
}

var errUnsent = errors.New("nobody has sent or declared them, or a change of the publication or the table has left rows out of the stream since")

// Before explains why nothing is known of the rows before a slot; nil: they are delivered.
func (c *Config) Before(kept *Kept, slot string, confirmed wal.LSN) error {
	rec, found := kept.Before[slot]
	switch {
	case !found:
		return errors.New("the checkpoint topic has no record of it")
	case rec.OID != c.Table || rec.Slot != slot || rec.System != kept.Here.SystemID:
		return errors.New("the record is of another table, slot or server")
	case rec.Positions != c.Positions:
		return fmt.Errorf("the record is from when positions were kept as %s, and they are kept as %s", rec.Positions, c.Positions)
	case confirmed < rec.Point:
		return fmt.Errorf("the record is of a slot that began at %s, and this one is at %s", rec.Point, confirmed)
	}
	if !rec.PartOf(kept.Here) {
		return fmt.Errorf("the record is of timeline %d, and the slot's beginning at %s is not part of the server's history", rec.Timeline, rec.Point)
	}
	if !rec.Before.Known() {
		return errUnsent
	}
	return nil
}
