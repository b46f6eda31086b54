package setup

import (
	"context"
	"errors"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// first writes the first checkpoint of each slot that setup made, so that the first run
// too has something to hold the slot against. Why that takes no row away:
//
//  1. It is written for a slot that this very run made, and says where that slot stood
//     then: nothing was to be sent from before.
//  2. It is written only where the topic says nothing of the slot. What an earlier slot
//     of that name left stays: where a run would refuse the gap between the two, setup makes no slot.
//  3. With at-least-once it has a key of its own, as each holder's has, and what a relay
//     goes by is the highest: one that has begun meanwhile is not set back.
//  4. It is written between two records of what lies before the slot (stored.BeforeSlot):
//     that nothing is known, and then what is.
//  5. With exactly-once it is written as a relay does, as the holder of the
//     transactional id, after everything that was committed: never over a relay's own
//     checkpoint, and not at all once a relay has taken over.
type first struct {
	setup    *Setup
	slots    map[string]bool // that were made
	standing *watch.Positions
	err      error // why standing is not known
	before   *before
}

// setupHolder is who setup is among the holders of a slot.
const setupHolder = "setup"

func newFirst(s *Setup) *first {
	return &first{setup: s, slots: make(map[string]bool)}
}

func (f *first) made(s provision.Step) {
	if s.Object == "slot" && f.setup.settings.KeepsPositions() {
		f.slots[s.Name] = true
	}
}

// readPositions is to come right after the making, before anybody can have moved a slot.
func (f *first) readPositions(ctx context.Context) {
	if len(f.slots) > 0 {
		f.standing, f.err = watch.ReadPositions(ctx, f.setup.settings.Replication)
	}
}

var errNotReached = errors.New("setup did not come that far")

// unwritten says of every slot that was made that it is not guarded.
func (f *first) unwritten(cause error) {
	for _, shard := range f.setup.settings.Replication.Shards() {
		if f.slots[shard.Slot] {
			f.warn(shard.Slot, cause)
		}
	}
}

func (f *first) warn(slot string, cause error) {
	at := "its position"
	if f.standing != nil {
		for _, s := range f.standing.Slots {
			if s.Name == slot && s.Err == nil {
				at = s.Confirmed.String()
			}
		}
	}
	f.setup.warn("slot %s is created, but its start position (%s) could not be written to topic %s: %v. A move of the slot before the first run cannot be detected. Next: correct the cause, then start `cdc-relay run`, which writes a position",
		slot, at, f.setup.settings.CheckpointTopic, cause)
}

// write returns an error where a relay would not stream from a slot that was made: its checkpoint came
// into the topic since refuseGap looked.
func (f *first) write(ctx context.Context) (refused error) {
	switch {
	case len(f.slots) == 0:
		return nil
	case f.err != nil:
		f.unwritten(f.err)
		return nil
	}
	within, cancel := context.WithTimeout(ctx, checkpoints.Patience(len(f.slots)))
	defer cancel()
	ledger, err := topics.NewLedger(f.setup.settings.Kafka.Connection, f.setup.settings.CheckpointTopic)
	if err != nil {
		f.unwritten(err)
		return nil
	}
	defer ledger.Close()
	f.before, err = newBefore(within, f.setup, ledger, f.standing.Origin)
	if err != nil {
		f.unwritten(err)
		return nil
	}
	for i, slot := range f.standing.Slots {
		if !f.slots[slot.Name] {
			continue
		}
		if slot.Err != nil {
			f.warn(slot.Name, slot.Err)
			continue
		}
		refused = errors.Join(refused, f.one(within, ledger, f.setup.settings.OfShard(i, len(f.standing.Slots)), slot))
	}
	looking, done := context.WithTimeout(ctx, lookPatience)
	defer done()
	if err := f.before.empty(looking); err != nil {
		f.setup.warn("whether rows lie before the slot is not written to topic %s: %v", f.setup.settings.CheckpointTopic, err)
	}
	return refused
}

func (f *first) one(ctx context.Context, ledger *topics.Ledger, cfg relay.Config, slot watch.SlotPosition) (refused error) {
	origin, topic := f.standing.Origin, f.setup.settings.CheckpointTopic
	if err := f.before.unknown(ctx, slot.Name, slot.Confirmed); err != nil {
		f.warn(slot.Name, err)
		return nil
	}
	known, err := checkpoints.Read(ctx, ledger, cfg.Guarantee, origin.SystemID, slot.Name)
	if err != nil {
		f.warn(slot.Name, err)
		return nil
	}
	if len(known) > 0 {
		if _, err := cfg.Resume().ConfirmedUpTo(known, origin, slot.Confirmed); err != nil {
			return refusal("slot "+slot.Name+" is created", topic, err)
		}
		f.setup.say("-- topic %s has a checkpoint of slot %s", topic, slot.Name)
		return nil
	}
	rec := stored.Position{
		System: origin.SystemID, Timeline: origin.Timeline, Began: origin.Begin(origin.Timeline), Slot: slot.Name, Publication: cfg.Replication.Publication, Relay: f.setup.version,
		End: slot.Confirmed,
	}
	if cfg.Guarantee == relay.ExactlyOnce {
		err = checkpoints.WriteFirst(ctx, f.setup.settings.Replication, cfg, &rec)
	} else {
		err = ledger.Write(ctx, stored.PromiseKey(setupHolder, origin.SystemID, slot.Name), rec.Encode())
	}
	if err != nil {
		f.warn(slot.Name, err)
		return nil
	}
	f.before.begins(slot)
	f.setup.say("wrote where slot %s begins (%s) to topic %s", slot.Name, slot.Confirmed, topic)
	return nil
}
