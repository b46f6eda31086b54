package takeover

import (
	"context"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// checkpoint says before anything is touched what the relay would refuse at its start:
// a configuration that keeps positions in a topic goes by what an earlier takeover
// left there.
func (c *Takeover) checkpoint(ctx context.Context) {
	if !c.settings.KeepsPositions() || c.survey.SlotError != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkpoints.Patience(1))
	defer cancel()
	err := c.compared(ctx)
	if err == nil {
		return
	}
	text := err.Error()
	if postgres.Reason(err) == fault.ReasonSlotAhead {
		text += ". If that was Debezium, which had the slot since, nothing is left out: stop the connector, then run it"
	}
	c.refusals = append(c.refusals, text)
}

func (c *Takeover) compared(ctx context.Context) error {
	standing, err := watch.ReadPositions(ctx, c.settings.Replication)
	if err != nil {
		return err
	}
	slot := standing.Slots[0] // a divided outbox is not taken over
	if slot.Err != nil {
		return slot.Err
	}
	ledger, err := topics.NewLedger(c.settings.Kafka.Connection, c.settings.CheckpointTopic)
	if err != nil {
		return err
	}
	defer ledger.Close()
	known, err := checkpoints.Read(ctx, ledger, c.settings.Guarantee, standing.Origin.SystemID, slot.Name)
	if err != nil {
		return broker.AdviseReachable(err)
	}
	if len(known) == 0 {
		return nil
	}
	settings := c.settings.OfShard(0, 1)
	_, err = settings.Resume().ConfirmedUpTo(known, standing.Origin, slot.Confirmed)
	return err
}
