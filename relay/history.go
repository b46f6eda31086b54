package relay

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// The reasons for which a server, or its slot, is not what the relay streamed from.
const (
	ReasonForeignServer   = resume.ReasonForeignServer
	ReasonForeignTimeline = resume.ReasonForeignTimeline
	ReasonStalePrimary    = resume.ReasonStalePrimary
	ReasonSlotMoved       = "slot_moved"
)

// checkHistory refuses a server that does not continue the history of the one that the last
// session streamed from, and acts on what is new (resume.Known.Continue).
func (r *Relay) checkHistory(src Source) error {
	start := src.Start()
	next, err := r.past.Continue(src.Origin(), start)
	if err != nil {
		return err
	}
	if fork := next.Fork; fork != nil {
		r.forked(r.past, next.Origin, *fork)
		r.parts.Router.Forked()
		if r.parked != nil {
			r.parked.Gone(func(id deadletter.ID) bool { return id.Commit >= fork.At && id.Timeline <= fork.Timeline })
		}
	}
	if next.Ahead {
		r.standby = true    // what that one sent last may be on its way still
		r.part = fragment{} // and may be the beginning again
		r.log.Warn().Stringer("lsn", start).Stringer("told", next.Limit).Str("slot", r.cfg.Replication.Slot).
			Msg("the slot is ahead of what this process confirmed: another relay streamed from it meanwhile, or somebody moved or made it")
	}
	r.past = next.Known
	return nil
}

// missed says of a slot that is gone how far this process had confirmed it. The probe does
// too, but looks later: a relay that exits when it is blocked has ended by then. Of shards
// it may be another one's slot that is missing, and the error tells of all of them.
func (r *Relay) missed(err error) error {
	if r.past.Told == 0 || r.cfg.Replication.Shard.Divided() || postgres.Reason(err) != fault.ReasonSlotMissing {
		return err
	}
	return catalog.SlotGone(r.cfg.Replication.Slot, r.past.Told)
}

// forked tells of a failover, and of rows that exist in Kafka alone since.
func (r *Relay) forked(was resume.Known, now wal.Origin, fork wal.Fork) {
	line := r.log.Info()
	text := "the server is on a new timeline; everything that was confirmed is part of it"
	if was.Told > fork.At {
		r.board.LostForks.Add(1)
		line = r.log.Error()
		text = "the server is on a new timeline, and rows that were delivered are no part of it: what committed between the two positions exists in Kafka alone"
	}
	line.Int32("from", was.Origin.Timeline).Int32("timeline", now.Timeline).Stringer("fork", fork.At).Stringer("told", was.Told).Msg(text)
}

// slotTaken reports that another relay streams from the slot: while ours does nobody else can
// move it. A relay that was suspended finds out by this, too.
func (s *session) slotTaken(snapshot *watch.Snapshot) error {
	if told := wal.LSN(s.told.Load()); !snapshot.Slot.Active || snapshot.Slot.Confirmed <= told {
		return nil
	}
	return &fault.Error{
		Kind: fault.KindRetry, Reason: fault.ReasonSlotInUse, Op: "watch", Subject: fmt.Sprintf("slot %q", s.r.cfg.Replication.Slot), LSN: snapshot.Slot.Confirmed,
		Err: errors.New("another consumer has it, and is further on than this relay"),
	}
}

// slotMoved reports that the slot, which nobody has, is ahead of everything that its only
// owner told: somebody moved it under the stream, and rows in between may never come.
func (s *session) slotMoved(snapshot *watch.Snapshot) error {
	told := wal.LSN(s.told.Load())
	if snapshot.Slot.Active || snapshot.Slot.Confirmed <= told {
		return nil
	}
	return &fault.Error{
		Kind: fault.KindDrift, Reason: ReasonSlotMoved, Op: "watch", Subject: fmt.Sprintf("slot %q", s.r.cfg.Replication.Slot), LSN: snapshot.Slot.Confirmed,
		Err:  fmt.Errorf("it was moved to there while the relay had confirmed %s", told),
		Hint: "find out who moved it: pg_replication_slot_advance, or a second consumer",
	}
}

// sayResumed logs what an operator has to know of where a start goes on, refused or not.
func (r *Relay) sayResumed(at *resume.Point, origin wal.Origin) {
	switch {
	case at.Gone:
		r.log.Error().Str("topic", r.cfg.CheckpointTopic).Stringer("lsn", at.Rec.End).Msg("the checkpoint is gone from its topic; going on from what this process committed last")
	case at.First:
		r.log.Warn().Str("topic", r.cfg.CheckpointTopic).Str("slot", r.cfg.Replication.Slot).Stringer("lsn", at.Rec.End).
			Msg("no checkpoint for this slot: exactly once begins at the slot's position. What another relay delivered beyond it comes again")
	}
	if at.Fork != nil {
		r.forked(resume.Known{Origin: wal.Origin{SystemID: at.Was.System, Timeline: at.Was.Timeline}, Told: at.Was.End}, origin, *at.Fork)
	}
}
