package check

import (
	"cmp"
	"context"
	"slices"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
)

// unreached are the checks without which there is nothing to compare.
var unreached = []string{"postgres.connection", "kafka.connection", "kafka.authentication"}

// checkpoints holds each slot against what the checkpoint topic says of it.
func (d *checker) checkpoints(ctx context.Context) {
	if !d.settings.KeepsPositions() {
		return
	}
	const check = "slot.checkpoint"
	topic := d.settings.CheckpointTopic
	for _, f := range d.findings {
		if f.Level == advice.Fail && slices.Contains(unreached, f.Check) {
			d.add(check, advice.Warn, "put "+f.Check+" right and run the check again", "slot and checkpoint could not be compared: see %s", f.Check)
			return
		}
	}
	standing, err := watch.ReadPositions(ctx, d.settings.Replication)
	if err != nil {
		seen, next := advice.Split(err)
		d.add(check, advice.Warn, cmp.Or(next, "run the check again"), "could not read the slot's position: %s", seen)
		return
	}
	ledger, err := topics.NewLedger(d.settings.Kafka.Connection, topic)
	if err != nil {
		d.add(check, advice.Warn, "correct the configuration", "%v", err)
		return
	}
	defer ledger.Close()
	ctx, cancel := context.WithTimeout(ctx, checkpoints.Patience(len(standing.Slots)))
	defer cancel()
	for i, slot := range standing.Slots {
		if slot.Err != nil {
			continue // the checks of the slot, or of the shards, say so
		}
		known, err := checkpoints.Read(ctx, ledger, d.settings.Guarantee, standing.Origin.SystemID, slot.Name)
		if err != nil {
			seen, next := advice.Split(err)
			d.add(check, advice.Warn, cmp.Or(next, "run the check again, or look at the topic and the relay's rights on it"),
				"slot %q is at %s, but could not be compared with its checkpoint: %s", slot.Name, slot.Confirmed, seen)
			return // nor could another
		}
		if len(known) == 0 {
			d.add(check, advice.Warn, "start the relay, which writes one; a move of the slot since its creation cannot be detected",
				"slot %q is at %s, and topic %s has no checkpoint of it: a relay accepts that position unchecked", slot.Name, slot.Confirmed, topic)
			continue
		}
		cfg := d.settings.OfShard(i, len(standing.Slots))
		end, err := cfg.Resume().ConfirmedUpTo(known, standing.Origin, slot.Confirmed)
		if err != nil {
			seen, next := advice.Split(err)
			d.add(check, advice.Fail, cmp.Or(next, wording.Docs+"operations.md#runbook says what to do for each reason"), "a relay would not stream: %s", seen)
			continue
		}
		if beyond := d.beyondWAL(ctx, &cfg, known, standing); beyond != 0 {
			d.add(check, advice.Warn, "stop the relay, run `cdc-relay setup --accept-gap`, which forgets that checkpoint, and start the relay: once the WAL has grown past it, nothing shows that",
				"slot %q has a checkpoint in topic %s at %s, and the server's WAL ends before that: the server was restored from an older copy, or lost WAL, and new rows could be taken for delivered", slot.Name, topic, beyond)
			continue
		}
		d.ok(check, "slot %q is at %s, and its checkpoint in topic %s at %s", slot.Name, slot.Confirmed, topic, end)
	}
}

// beyondWAL returns the position of a checkpoint that the server's WAL ends before; else zero. standing was read
// before the topic, in which a running relay goes on: what seems to be beyond is compared with the end of now.
func (d *checker) beyondWAL(ctx context.Context, cfg *relay.Config, known map[string][]byte, standing *watch.Positions) wal.LSN {
	if cfg.Resume().BeyondWAL(known, standing.Origin, standing.WALEnd) == 0 {
		return 0
	}
	now, err := watch.ReadPositions(ctx, d.settings.Replication)
	if err != nil {
		return 0 // the other checks of the server say so
	}
	return cfg.Resume().BeyondWAL(known, now.Origin, now.WALEnd)
}
