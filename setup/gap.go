package setup

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// gapPatience is how long the checkpoint topic may take to be read and written where the
// gaps of so many slots are to be accepted: the transaction of a relay that was killed
// hides what follows it until the brokers end that.
func gapPatience(slots int) time.Duration { return time.Minute + time.Duration(slots)*time.Second }

// AcceptGap removes the checkpoints of the slots that a relay would not stream from because
// of them, or whose rows it could take for delivered (resume.Config.BeyondWAL). Those of the
// other slots stay, or a gap of theirs that comes until the next run would be accepted with this
// one. A relay that streams would not write its checkpoint again before it confirms more, and
// slots of that name on other servers keep theirs. With dryRun it only says what it would remove,
// also of slots that setup is still to make.
func (s *Setup) AcceptGap(ctx context.Context, dryRun bool) error {
	return s.acceptGap(ctx, dryRun, nil)
}

// acceptGap is AcceptGap after slots were made: whatever the topic has of their names is of earlier ones.
func (s *Setup) acceptGap(ctx context.Context, dryRun bool, made map[string]bool) error {
	if err := provision.CheckIdle(ctx, s.settings.Replication); err != nil {
		return fault.Refuse(err)
	}
	standing, err := watch.ReadPositions(ctx, s.settings.Replication)
	if err != nil {
		return fault.Refuse(err)
	}
	ledger, err := topics.NewLedger(s.settings.Kafka.Connection, s.settings.CheckpointTopic)
	if err != nil {
		return &advice.Refused{Err: err}
	}
	defer ledger.Close()
	ctx, cancel := context.WithTimeout(ctx, gapPatience(len(standing.Slots)))
	defer cancel()
	g := &gap{setup: s, ledger: ledger, origin: standing.Origin, end: standing.WALEnd, made: made, dryRun: dryRun}
	if !dryRun {
		if g.before, err = newBefore(ctx, s, ledger, standing.Origin); err != nil {
			return fault.Refuse(err)
		}
	}
	for i, slot := range standing.Slots {
		if err := g.accept(ctx, s.settings.OfShard(i, len(standing.Slots)), slot); err != nil {
			return &advice.Refused{Err: broker.AdviseReachable(err)}
		}
	}
	return nil
}

// gap is what lies between slots and their checkpoints.
type gap struct {
	setup  *Setup
	ledger *topics.Ledger
	origin wal.Origin
	end    wal.LSN         // of the WAL, from when nobody had a slot
	made   map[string]bool // slots of this run
	dryRun bool
	before *before // nil in a dry run
}

func (g *gap) accept(ctx context.Context, cfg relay.Config, slot watch.SlotPosition) error {
	end, err := g.connected(ctx, cfg, slot)
	if err != nil {
		return err
	}
	if end != 0 {
		g.setup.say("-- slot %s is at %s, and not ahead of its checkpoint at %s; the checkpoint stays", slot.Name, slot.Confirmed, end)
		return nil
	}
	keys, err := g.keys(ctx, slot.Name)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		g.setup.say("-- there is no checkpoint of slot %s", slot.Name)
	}
	if len(keys) > 0 && !g.dryRun { // first: what was known was known of another slot
		if err := g.before.unknown(ctx, slot.Name, slot.Confirmed); err != nil {
			return err
		}
	}
	for _, key := range keys {
		if g.dryRun {
			g.setup.say("-- would forget the checkpoint of slot %s (key %q of the checkpoint topic): the next run would begin at the slot's position", slot.Name, key)
			continue
		}
		if err := g.ledger.Write(ctx, key, nil); err != nil {
			return err
		}
		g.setup.say("forgot the checkpoint of slot %s (key %q of the checkpoint topic): the next run begins at the slot's position", slot.Name, key)
	}
	return nil
}

// connected returns the position up to which the checkpoint topic knows of a slot, zero
// where that is nothing, or what a relay would refuse.
func (g *gap) connected(ctx context.Context, cfg relay.Config, slot watch.SlotPosition) (wal.LSN, error) {
	switch {
	case slot.Err == nil:
	case g.dryRun && postgres.Reason(slot.Err) == fault.ReasonSlotMissing:
		return 0, nil // it will be made, and be ahead of whatever is there
	default:
		return 0, slot.Err
	}
	known, err := checkpoints.Read(ctx, g.ledger, cfg.Guarantee, g.origin.SystemID, slot.Name)
	if g.unmade(err) || err == nil && len(known) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if g.made[slot.Name] || cfg.Resume().BeyondWAL(known, g.origin, g.end) != 0 {
		return 0, nil
	}
	return compared(cfg, g.origin, slot.Confirmed, known)
}

// keys are those under which the topic has something of a slot, from a relay with
// whichever guarantee.
func (g *gap) keys(ctx context.Context, slot string) (keys []string, err error) {
	for _, guarantee := range []relay.Guarantee{relay.AtLeastOnce, relay.ExactlyOnce} {
		known, err := checkpoints.Read(ctx, g.ledger, guarantee, g.origin.SystemID, slot)
		if g.unmade(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		keys = append(keys, slices.Sorted(maps.Keys(known))...)
	}
	return keys, nil
}

// unmade reports whether nothing is in the topic, as setup is still to make it. What else may
// be wrong with the topic has been refused before.
func (g *gap) unmade(err error) bool {
	e, ok := errors.AsType[*sink.Error](err)
	return g.dryRun && ok && e.Reason == fault.ReasonCheckpointTopic
}

// compared returns the position up to which the checkpoint topic knows of a slot at start, zero where a
// relay would refuse the two.
func compared(cfg relay.Config, origin wal.Origin, start wal.LSN, known map[string][]byte) (wal.LSN, error) {
	end, err := cfg.Resume().ConfirmedUpTo(known, origin, start)
	refused, slots := errors.AsType[*fault.Error](err)
	_, topics := errors.AsType[*sink.Error](err)
	if slots && refused.Kind == fault.KindRefused || topics { // what else there is says nothing of the two, or passes: an old primary
		return 0, nil
	}
	return end, err
}
