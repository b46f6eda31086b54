package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// DeclareDelivered records the operator's declaration that the rows from before the slots are
// delivered, or need not be, and those whose dead letters were in a topic that is gone. It refuses
// while dead letters wait. It refuses slots that a relay would not stream from: what lies between
// such a slot and its checkpoint is another question. Nobody may make the slots anew meanwhile. With dryRun it only says what it would write.
func (s *Setup) DeclareDelivered(ctx context.Context, dryRun bool) error {
	standing, err := watch.ReadPositions(ctx, s.settings.Replication)
	if err != nil {
		return fault.Refuse(err)
	}
	ledger, err := topics.NewLedger(s.settings.Kafka.Connection, s.settings.CheckpointTopic)
	if err != nil {
		return &advice.Refused{Err: err}
	}
	defer ledger.Close()
	ctx, cancel := context.WithTimeout(ctx, checkpoints.Patience(len(standing.Slots))+time.Minute)
	defer cancel()
	b, err := newBefore(ctx, s, ledger, standing.Origin)
	if err != nil {
		return fault.Refuse(err)
	}
	for i, slot := range standing.Slots { // all of them, before anything is written
		if slot.Err != nil {
			return fault.Refuse(slot.Err)
		}
		cfg := s.settings.OfShard(i, len(standing.Slots))
		known, err := checkpoints.Read(ctx, ledger, cfg.Guarantee, standing.Origin.SystemID, slot.Name)
		if err != nil {
			return &advice.Refused{Err: broker.AdviseReachable(err)}
		}
		if len(known) == 0 {
			return fault.Refuse(&fault.Error{
				Kind: fault.KindRefused, Reason: fault.ReasonBeforeSlotUnknown, Op: "declare what lies before", Subject: postgres.SlotSubject(slot.Name),
				Err: errors.New("topic " + s.settings.CheckpointTopic + " has no position of it"), Hint: "start the relay, which writes one, and run this again",
			})
		}
		if _, err := cfg.Resume().ConfirmedUpTo(known, standing.Origin, slot.Confirmed); err != nil {
			return &advice.Refused{Err: err}
		}
		if err := b.lacked(ctx, slot.Name); err != nil {
			return &advice.Refused{Err: broker.AdviseReachable(err)}
		}
	}
	letters, err := s.readLetters(ctx, ledger, standing.Origin.SystemID)
	if err != nil {
		return &advice.Refused{Err: broker.AdviseReachable(err)}
	}
	if err := s.refuseWaiting(ctx, letters); err != nil {
		return err
	}
	if err := s.declare(ctx, b, standing, dryRun); err != nil {
		return err
	}
	if err := s.renewLetters(ctx, ledger, letters, dryRun); err != nil {
		return &advice.Refused{Err: broker.AdviseReachable(err)}
	}
	return nil
}

// lacked refuses to declare anything of a table that whoever streams from a slot does not have: the slot
// goes on moving past its rows.
func (b *before) lacked(ctx context.Context, slot string) error {
	passed, err := b.passedOver(ctx, slot)
	if err == nil && len(passed) > 0 {
		err = advice.Give(fmt.Errorf("the relay that streamed last from slot %s did not have table %s, and passes over its rows", slot, passed[0]),
			"start `cdc-relay run` with this configuration, and run this again")
	}
	return err
}

// passedOver returns the tables that the relay which streamed last from a slot did not have.
func (b *before) passedOver(ctx context.Context, slot string) (tables []wal.Table, err error) {
	known, err := b.ledger.Read(ctx, stored.BeforeSlotSuffix(b.origin.SystemID, slot))
	if err != nil {
		return nil, err
	}
	value := known[stored.StreamedKey(b.origin.SystemID, slot)]
	if value == nil { // no relay has streamed yet, or an earlier version did
		return nil, nil
	}
	streamed, err := stored.ParseStreamed(value)
	if err != nil {
		return nil, err
	}
	for _, t := range b.tables {
		if !slices.Contains(streamed.Tables, t.OID) {
			tables = append(tables, t.Table)
		}
	}
	return tables, nil
}

func (s *Setup) declare(ctx context.Context, b *before, standing *watch.Positions, dryRun bool) error {
	for _, slot := range standing.Slots {
		for _, table := range b.tables {
			if dryRun {
				s.say("-- would write to topic %s that the rows of %s from before slot %s are delivered", s.settings.CheckpointTopic, table.Table, slot.Name)
				continue
			}
			if err := b.write(ctx, slot.Name, slot.Confirmed, &table, stored.BeforeDeclared); err != nil {
				return &advice.Refused{Err: broker.AdviseReachable(err)}
			}
			s.say("wrote to topic %s that the rows of %s from before slot %s are delivered", s.settings.CheckpointTopic, table.Table, slot.Name)
		}
	}
	return nil
}
