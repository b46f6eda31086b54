package setup

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
)

// Reshard changes the number of shards to that of the configuration.
func (s *Setup) Reshard(ctx context.Context, options provision.SetupOptions, from int, wait time.Duration) error {
	settings := s.settings
	switch {
	case settings.Guarantee == relay.ExactlyOnce:
		return &advice.Usage{Err: errors.New("--reshard-from is not possible with relay.guarantee: exactly_once: the checkpoints belong to the old slots, and rows from after the least of them would be sent twice")}
	case settings.ParkKey:
		return &advice.Usage{Err: errors.New("--reshard-from is not possible with relay.park_key: the new slots would not know the parked keys; re-drive all of them, set relay.park_key: false, and set it again afterwards")}
	}
	made := false
	var known carried
	report, err := provision.Reshard(ctx, settings.Replication, from, provision.ReshardOptions{
		Columns: options.Columns,
		OnStep: func(step provision.Step) {
			switch {
			case step.Exists:
				s.say("-- %s %s exists", step.Object, step.Name)
			case step.Object == provision.DroppedSlot:
				made = true
				s.say("dropped slot %s", step.Name)
			default:
				made = made || step.Object == "slot"
				s.say("created %s %s", step.Object, step.Name)
			}
		},
		OnWait: func(text string) { s.say("waiting: %s", text) },
		BeforeDrop: func() {
			if !settings.KeepsPositions() {
				return
			}
			var err error
			old := New(former(settings, from), s.version, s.say, s.warn)
			if known, err = old.known(ctx); err != nil {
				s.warn("what is known of the rows from before the slots is not carried over: %v", err)
			}
		},
		Wait: wait,
	})
	if report != nil {
		s.printReport(report, false)
	}
	if err != nil {
		return fault.Refuse(err)
	}
	if made && settings.KeepsPositions() { // rows up to the position of the copies are delivered: whatever the topic has is of earlier slots
		copies := make(map[string]bool)
		for _, shard := range settings.Replication.Shards() {
			copies[shard.Slot] = true
		}
		if err := s.acceptGap(ctx, false, copies); err != nil {
			return advice.Give(err, "then run `cdc-relay setup --accept-gap`: no row lies between the new slots and an earlier checkpoint of their names")
		}
	}
	if len(known) > 0 {
		if err := s.carry(ctx, known); err != nil {
			s.warn("what is known of the rows from before the slots is not carried over: %v; retention and marks do nothing until `cdc-relay setup --before-slot delivered`", err)
		}
	}
	s.say("done: start `cdc-relay run` with postgres.shards: %d", max(1, settings.Replication.Shard.Count))
	return nil
}
