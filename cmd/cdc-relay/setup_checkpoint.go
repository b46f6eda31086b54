package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafkatx"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
)

// first writes the first checkpoint of each slot that setup made, so that the first run
// too has something to hold the slot against. Why that takes no row away:
//
//  1. It is written for a slot that this very run made, and says where that slot stood
//     then: nothing was to be sent from before.
//  2. It is written only where the topic says nothing of the slot. What an earlier slot
//     of that name left stays, and the next run refuses the gap between the two.
//  3. With at-least-once it has a key of its own, as each holder's has, and what a relay
//     goes by is the highest: one that has begun meanwhile is not set back.
//  4. With exactly-once it is written as a relay does, as the holder of the
//     transactional id, behind everything that was committed: never over a relay's own
//     checkpoint, and not at all once a relay has taken over.
type first struct {
	app      *app
	settings relay.Config
	slots    map[string]bool // that were made
	standing *watch.Positions
	err      error // why standing is not known
}

// setupHolder is who setup is among the holders of a slot.
const setupHolder = "setup"

func newFirst(a *app, settings relay.Config) *first {
	return &first{app: a, settings: settings, slots: make(map[string]bool)}
}

func (f *first) made(s provision.Step) {
	if s.Object == "slot" && f.settings.KeepsPositions() {
		f.slots[s.Name] = true
	}
}

// look is to come right behind the making, before anybody can have moved a slot.
func (f *first) look(ctx context.Context) {
	if len(f.slots) > 0 {
		f.standing, f.err = watch.ReadPositions(ctx, f.settings.Replication)
	}
}

var errNotReached = errors.New("setup did not come that far")

// unwritten says of every slot that was made that it is not guarded.
func (f *first) unwritten(cause error) {
	for _, shard := range f.settings.Replication.Shards() {
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
	fmt.Fprintf(f.app.stderr, "cdc-relay: warning: slot %s is made, and where it begins (%s) is not written to topic %s: %v. If somebody moves the slot before the first run, that is not seen; start the relay, which writes it\n",
		slot, at, f.settings.CheckpointTopic, cause)
}

// write says whether a relay would stream from the slots that were made.
func (f *first) write(ctx context.Context) (ready bool) {
	switch {
	case len(f.slots) == 0:
		return true
	case f.err != nil:
		f.unwritten(f.err)
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, checkpoints.Patience(len(f.slots)))
	defer cancel()
	ledger, err := topics.NewLedger(f.settings.Kafka.Connection, f.settings.CheckpointTopic)
	if err != nil {
		f.unwritten(err)
		return true
	}
	defer ledger.Close()
	ready = true
	for i, slot := range f.standing.Slots {
		if !f.slots[slot.Name] {
			continue
		}
		if slot.Err != nil {
			f.warn(slot.Name, slot.Err)
			continue
		}
		ready = f.one(ctx, ledger, f.settings.OfShard(i, len(f.standing.Slots)), slot) && ready
	}
	return ready
}

func (f *first) one(ctx context.Context, ledger *topics.Ledger, cfg relay.Config, slot watch.SlotPosition) (ready bool) {
	origin, topic := f.standing.Origin, f.settings.CheckpointTopic
	known, err := checkpoints.Read(ctx, ledger, cfg.Guarantee, origin.SystemID, slot.Name)
	if err != nil {
		f.warn(slot.Name, err)
		return true
	}
	if len(known) > 0 {
		if _, err := cfg.ConfirmedUpTo(known, origin, slot.Confirmed); err != nil {
			fmt.Fprintf(f.app.stderr, "cdc-relay: warning: topic %s has the checkpoint of an earlier slot %s, and the next run would refuse this one: %v\n", topic, slot.Name, err)
			return false
		}
		fmt.Fprintf(f.app.stdout, "-- topic %s has a checkpoint of slot %s\n", topic, slot.Name)
		return true
	}
	rec := checkpoint.Record{
		System: origin.SystemID, Timeline: origin.Timeline, Slot: slot.Name, Publication: cfg.Replication.Publication, Relay: build().Version,
		End: slot.Confirmed,
	}
	if cfg.Guarantee == relay.ExactlyOnce {
		err = f.commit(ctx, cfg, &rec)
	} else {
		err = ledger.Write(ctx, checkpoint.IntentKey(setupHolder, origin.SystemID, slot.Name), rec.Encode())
	}
	if err != nil {
		f.warn(slot.Name, err)
		return true
	}
	fmt.Fprintf(f.app.stdout, "wrote where slot %s begins (%s) to topic %s\n", slot.Name, slot.Confirmed, topic)
	return true
}

var errTaken = errors.New("a relay has begun with it meanwhile, and writes its own")

// commit writes the record as the holder of the transactional id. Taking that shuts a
// relay out, so none may have the slot.
func (f *first) commit(ctx context.Context, cfg relay.Config, rec *checkpoint.Record) error {
	now, err := watch.ReadPositions(ctx, f.settings.Replication)
	if err != nil {
		return err
	}
	for _, slot := range now.Slots {
		switch {
		case slot.Name != rec.Slot:
		case slot.Err != nil:
			return slot.Err
		case slot.Active:
			return errTaken
		}
	}
	tx, err := kafkatx.New(kafkatx.Config{Config: cfg.Kafka, CheckpointTopic: cfg.CheckpointTopic}, zerolog.Nop())
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Close(ending)
	}()
	lost, done := make(chan error, 1), make(chan struct{})
	value, err := tx.Open(ctx, sink.Holder{
		ID: checkpoint.TransactionalID(rec.System, rec.Slot), Key: checkpoint.Key(rec.System, rec.Slot),
		Lost: func(err error) { lost <- err }, // called once at most
	})
	switch {
	case err != nil:
		return err
	case value != nil:
		return errTaken
	}
	tx.Mark(sink.Position{Value: rec.Encode(), Whole: true, Now: true, Committed: sync.OnceFunc(func() { close(done) })})
	select {
	case <-done:
		return nil
	case err := <-lost:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
