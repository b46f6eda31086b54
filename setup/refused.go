package setup

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
)

// refuseGap refuses to make a slot that a relay would not stream from, because the checkpoint topic
// has the checkpoint of an earlier slot of its name. A slot that nobody streams from holds back WAL
// until the disk is full.
func (s *Setup) refuseGap(ctx context.Context) error {
	if !s.settings.KeepsPositions() {
		return nil
	}
	standing, err := watch.ReadPositions(ctx, s.settings.Replication)
	if postgres.Reason(err) == fault.ReasonPermission {
		return nil // this role makes no slot: a later call, as the relay's role, looks again
	}
	if err != nil {
		return fault.Refuse(err)
	}
	missing := 0
	for _, slot := range standing.Slots {
		if postgres.Reason(slot.Err) == fault.ReasonSlotMissing {
			missing++
		}
	}
	if missing == 0 {
		return nil
	}
	ledger, err := topics.NewLedger(s.settings.Kafka.Connection, s.settings.CheckpointTopic)
	if err != nil {
		return &advice.Refused{Err: err}
	}
	defer ledger.Close()
	ctx, cancel := context.WithTimeout(ctx, checkpoints.Patience(missing))
	defer cancel()
	var refused error
	for i, slot := range standing.Slots {
		if postgres.Reason(slot.Err) != fault.ReasonSlotMissing {
			continue
		}
		cfg := s.settings.OfShard(i, len(standing.Slots))
		known, err := checkpoints.Read(ctx, ledger, cfg.Guarantee, standing.Origin.SystemID, slot.Name)
		switch e, ok := errors.AsType[*sink.Error](err); {
		case ok && e.Reason == fault.ReasonCheckpointTopic:
			return nil // setup is still to make it, or says what is wrong with it
		case err != nil:
			return &advice.Refused{Err: broker.AdviseReachable(err)}
		case len(known) == 0:
			continue
		}
		// To make the slot writes WAL, so it will be beyond what is there now.
		if _, err := cfg.Resume().ConfirmedUpTo(known, standing.Origin, standing.WALEnd+1); err != nil {
			refused = errors.Join(refused, refusal("slot "+slot.Name+" is not created", s.settings.CheckpointTopic, err))
		} else if beyond := cfg.Resume().BeyondWAL(known, standing.Origin, standing.WALEnd); beyond != 0 {
			refused = errors.Join(refused, &advice.Refused{Err: advice.Give(
				fmt.Errorf("slot %s is not created: topic %s has a checkpoint of an earlier slot of this name at %s, and the server's WAL ends at %s: the server was restored from an older copy, and `cdc-relay run` could take its new rows for delivered", slot.Name, s.settings.CheckpointTopic, beyond, standing.WALEnd),
				"run `cdc-relay setup --accept-gap`, which forgets that checkpoint, and start `cdc-relay run`")})
		}
	}
	return refused
}

// refusal explains why a relay would not stream from a slot of setup, and what to do.
func refusal(what, topic string, err error) error {
	seen, next := advice.Split(err)
	if refused, ok := errors.AsType[*fault.Error](err); ok {
		seen = refused.Err.Error()
		if refused.Reason == fault.ReasonSlotAhead {
			next = "rows that committed between the two positions are not sent, and until there is a slot these become more: note both positions. Then run `cdc-relay setup --accept-gap` and start `cdc-relay run`; " +
				"send rows of the gap that matter with `cdc-relay replay`"
		}
	}
	if next == "" {
		next = "see " + wording.Docs + "operations.md#runbook"
	}
	return &advice.Refused{Err: advice.Give(fmt.Errorf("%s: `cdc-relay run` would refuse it, because topic %s still has the checkpoint of an earlier slot of this name (%s)", what, topic, seen), next)}
}
