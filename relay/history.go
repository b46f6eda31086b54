package relay

import (
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
)

// checkHistory refuses a server that does not continue the history of the one that the last
// session streamed from, and acts on what is new (resume.Known.Continue).
func (r *Relay) checkHistory(src Source) error {
	start := src.StartLSN()
	next, err := r.known.Continue(src.Origin(), start)
	if err != nil {
		return err
	}
	if fork := next.Fork; fork != nil {
		r.shared.Forked(r.known, next.Origin, *fork)
	}
	// Another relay may have used the slot: its last records may still be on their way, and it may
	// send the beginning of an open transaction again.
	if next.Ahead {
		r.waitForPredecessor = true
		r.shared.ForgetPartial()
		r.doubts.Again()
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
