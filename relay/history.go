package relay

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// The reasons for which a server, or its slot, is not what the relay streamed from.
const (
	ReasonForeignServer   = "foreign_server"
	ReasonForeignTimeline = "foreign_timeline"
	ReasonStalePrimary    = "stale_primary"
	ReasonSlotMoved       = "slot_moved"
)

// past is what this process knows from its sessions. It is Run's goroutine's alone.
type past struct {
	origin wal.Origin
	told   wal.LSN // highest position told to a server on that timeline
}

// checkHistory decides whether a server continues the history of the one that the
// last session streamed from. A position of ours is never used on another server
// than the one that was told it: each session starts from the slot. What is looked
// for here is what that cannot see.
//
//  1. Another cluster: its rows may have been delivered already, or belong elsewhere.
//  2. An older timeline: the old primary came back, and its slot with it.
//  3. A timeline that does not descend from ours, also where it bears the same number:
//     two standbys were promoted from one history.
//  4. A fork before what we confirmed: rows behind it were delivered and exist no
//     more, and new rows take their positions. Nothing can call them back; it is said
//     loudly and gone on.
//  5. A slot ahead of what we told, also behind a fork: another relay streamed from it
//     meanwhile, or somebody moved or made it. Two relays on one slot are usual, so that is
//     only said.
func (r *Relay) checkHistory(src Source) error {
	now, start := src.Origin(), src.Start()
	was := r.past
	if was.origin.SystemID == "" {
		r.past = past{now, start}
		return nil
	}
	refuse := func(kind fault.Kind, reason, hint, cause string, args ...any) error {
		return &fault.Error{Kind: kind, Reason: reason, Op: "check the server's history", Err: fmt.Errorf(cause, args...), Hint: hint}
	}
	known := was.told // no position of ours on this history lies behind it
	switch {
	case now.SystemID != was.origin.SystemID:
		return refuse(fault.KindRefused, ReasonForeignServer, "correct postgres.url; if the database was moved there on purpose, restart the relay",
			"its system identifier is %s, and the relay streamed from %s", now.SystemID, was.origin.SystemID)
	case now.Timeline < was.origin.Timeline:
		return refuse(fault.KindRetry, ReasonStalePrimary, "it is an old primary: shut it down, or rewind it to a standby",
			"it is on timeline %d, and the relay streamed on timeline %d", now.Timeline, was.origin.Timeline)
	case now.Timeline == was.origin.Timeline && now.Common(was.origin) != ^wal.LSN(0):
		return refuse(fault.KindRefused, ReasonForeignTimeline, "another standby was promoted; if this server is to be streamed from, restart the relay",
			"it is on timeline %d, as the server that the relay streamed from, and left their common history at %s", now.Timeline, now.Common(was.origin))
	case now.Timeline > was.origin.Timeline:
		fork, ok := now.Fork(was.origin.Timeline)
		if !ok || now.Common(was.origin) != fork.At {
			return refuse(fault.KindRefused, ReasonForeignTimeline, "it was restored from elsewhere; if it is to be streamed from, restart the relay",
				"its timeline %d does not descend from timeline %d, on which the relay streamed", now.Timeline, was.origin.Timeline)
		}
		known = min(known, fork.At)
		r.forked(was, now, fork)
		r.parts.Router.Forked()
		if r.parked != nil {
			r.parked.Gone(func(id deadletter.ID) bool { return id.Commit >= fork.At && id.Timeline <= fork.Timeline })
		}
	}
	if start > known {
		r.standby = true    // what that one sent last may be on its way still
		r.part = fragment{} // and may be the beginning again
		r.log.Warn().Stringer("lsn", start).Stringer("told", known).Str("slot", r.cfg.Replication.Slot).
			Msg("the slot is ahead of what this process confirmed: another relay streamed from it meanwhile, or somebody moved or made it")
	}
	r.past = past{now, max(start, was.told)}
	if now.Timeline != was.origin.Timeline {
		r.past.told = start
	}
	return nil
}

// missed says of a slot that is gone how far this process had confirmed it. The probe does
// too, but looks later: a relay that exits when it is blocked has ended by then. Of shards
// it may be another one's slot that is missing, and the error tells of all of them.
func (r *Relay) missed(err error) error {
	if r.past.told == 0 || r.cfg.Replication.Shard.Divided() || postgres.Reason(err) != fault.ReasonSlotMissing {
		return err
	}
	return catalog.SlotGone(r.cfg.Replication.Slot, r.past.told)
}

// forked tells of a failover, and of rows that exist in Kafka alone since.
func (r *Relay) forked(was past, now wal.Origin, fork wal.Fork) {
	line := r.log.Info()
	text := "the server is on a new timeline; everything that was confirmed is part of it"
	if was.told > fork.At {
		r.board.LostForks.Add(1)
		line = r.log.Error()
		text = "the server is on a new timeline, and rows that were delivered are no part of it: what committed between the two positions exists in Kafka alone"
	}
	line.Int32("from", was.origin.Timeline).Int32("timeline", now.Timeline).Stringer("fork", fork.At).Stringer("told", was.told).Msg(text)
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
