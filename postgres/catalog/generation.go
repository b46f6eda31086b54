package catalog

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/wording"
)

// ShardSlot is a slot of any generation.
type ShardSlot struct {
	Name         string
	Count, index int
	SlotRow
}

// ShardSlots are the slots of every generation that exist in this database.
func ShardSlots(q postgres.Querier, version int, base string) ([]ShardSlot, error) {
	rows, err := q.All(fmt.Sprintf(`SELECT slot_name FROM pg_catalog.pg_replication_slots
		WHERE slot_type = 'logical' AND database = current_database() AND left(slot_name, %d) = %s ORDER BY length(slot_name), slot_name`, len(base), postgres.QuoteLiteral(base)))
	if err != nil {
		return nil, postgres.Classify("look at the shards' slots", err)
	}
	var slots []ShardSlot
	for _, row := range rows {
		name := row[0].Text
		count, index, ok := postgres.ParseShardName(base, name)
		if !ok {
			continue
		}
		slot, err := ReadSlot(q, version, name)
		if postgres.Reason(err) == fault.ReasonSlotMissing {
			continue // dropped meanwhile
		}
		if err != nil {
			return nil, err
		}
		slots = append(slots, ShardSlot{Name: name, Count: count, index: index, SlotRow: *slot})
	}
	return slots, nil
}

// OnlyGeneration refuses to go on while there are slots of another number of shards.
// Two generations send the same rows, each in its own order.
func OnlyGeneration(q postgres.Querier, version int, cfg postgres.Config) error {
	if cfg.Shard.Slot == "" {
		return nil
	}
	slots, err := ShardSlots(q, version, cfg.Shard.Slot)
	if err != nil {
		return err
	}
	for _, s := range slots {
		if s.Count != max(1, cfg.Shard.Count) {
			return &fault.Error{
				Kind: fault.KindRefused, Reason: fault.ReasonShards, Op: "look at", Subject: postgres.SlotSubject(s.Name),
				Err:  fmt.Errorf("it is one of %s, and postgres.shards is %d", wording.Count(s.Count, "shard"), max(1, cfg.Shard.Count)),
				Hint: fmt.Sprintf("to change the number without loss: `cdc-relay setup --reshard-from %d` with the new configuration, until it reports that it is done; or set postgres.shards back to %[1]d where no slot of another number exists; if a slot belongs to another relay, rename that slot or change postgres.slot", s.Count),
			}
		}
	}
	return nil
}

// wholeGeneration refuses to stream from some of the shards while the slots of others
// are not there: setup makes those from where the first one stands, and what that
// one has confirmed by then would be missing in them.
func wholeGeneration(q postgres.Querier, version int, cfg postgres.Config) error {
	if err := OnlyGeneration(q, version, cfg); err != nil || cfg.Shard.Count < 2 {
		return err
	}
	slots, err := ShardSlots(q, version, cfg.Shard.Slot)
	if err != nil || len(slots) >= cfg.Shard.Count {
		return err
	}
	missing := &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonSlotMissing, Op: "look at", Subject: fmt.Sprintf("the slots of %d shards", cfg.Shard.Count),
		Err: fmt.Errorf("%d of them exist", len(slots)), Hint: "run `cdc-relay setup` if it was cut short; if slots were dropped, send the rows since then again (`cdc-relay replay`): " + postgres.SeeSendingAgain,
	}
	return SlotMissing(q, cfg, missing)
}
