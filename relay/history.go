package relay

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// checkHistory refuses a server that does not continue the history of the one that the last
// session streamed from, and acts on what is new (resume.Known.Continue).
func (r *Relay) checkHistory(src Source) error {
	start := src.Start()
	next, err := r.known.Continue(src.Origin(), start)
	if err != nil {
		return err
	}
	if fork := next.Fork; fork != nil {
		r.delivery.Forked(r.known, next.Origin, *fork)
	}
	// Another relay may have used the slot: its last records may still be on their way, and it may
	// send the beginning of an open transaction again.
	if next.Ahead {
		r.waitForPredecessor = true
		r.delivery.ForgetPartial()
		r.log.Warn().Stringer("lsn", start).Stringer("reported", next.Limit).Str("slot", r.cfg.Replication.Slot).
			Msg("the slot is ahead of the position that this process confirmed: another relay used it, or somebody moved or recreated it")
	}
	r.known = next.Known
	return nil
}

// slotGone adds to the error of a missing slot how far this process had confirmed it. The probe
// reports that too, but later, when a relay that exits when it is blocked has already ended. With
// shards the missing slot may be another shard's, so the error stays as it is: it names all of them.
func (r *Relay) slotGone(err error) error {
	if r.known.Reported == 0 || r.cfg.Replication.Shard.Divided() || postgres.Reason(err) != fault.ReasonSlotMissing {
		return err
	}
	return catalog.SlotGone(r.cfg.Replication.Slot, r.known.Reported)
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
