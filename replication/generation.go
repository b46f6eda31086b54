package replication

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/wording"
)

// shardSlot is a slot of any generation.
type shardSlot struct {
	name         string
	count, index int
	slotRow
}

// shardSlots are the slots of every generation that exist in this database.
func shardSlots(q querier, version int, base string) ([]shardSlot, error) {
	rows, err := q.all(fmt.Sprintf(`SELECT slot_name FROM pg_catalog.pg_replication_slots
		WHERE slot_type = 'logical' AND database = current_database() AND left(slot_name, %d) = %s ORDER BY length(slot_name), slot_name`, len(base), singleQuoted(base)))
	if err != nil {
		return nil, classify("look at the shards' slots", err)
	}
	var slots []shardSlot
	for _, row := range rows {
		name := row[0].text
		count, index, ok := parseShardName(base, name)
		if !ok {
			continue
		}
		slot, err := readSlot(q, version, name)
		if Reason(err) == ReasonSlotMissing {
			continue // dropped meanwhile
		}
		if err != nil {
			return nil, err
		}
		slots = append(slots, shardSlot{name: name, count: count, index: index, slotRow: *slot})
	}
	return slots, nil
}

// onlyGeneration refuses to go on while there are slots of another number of shards.
// Two generations send the same rows, each in its own order.
func onlyGeneration(q querier, version int, cfg Config) error {
	if cfg.Shard.Slot == "" {
		return nil
	}
	slots, err := shardSlots(q, version, cfg.Shard.Slot)
	if err != nil {
		return err
	}
	for _, s := range slots {
		if s.count != max(1, cfg.Shard.Count) {
			return &Error{
				Kind: KindRefused, Reason: ReasonShards, Op: "look at the shards", Subject: slotSubject(s.name),
				Err:  fmt.Errorf("it is one of %s, and postgres.shards is %d", wording.Count(s.count, "shard"), max(1, cfg.Shard.Count)),
				Hint: fmt.Sprintf("to change the number without loss: `cdc-relay setup --reshard-from %d` with the new configuration, until it says that it is done; or set postgres.shards back to %[1]d where no slot of another number exists; a slot that is none of this relay's shards needs another name, or postgres.slot does", s.count),
			}
		}
	}
	return nil
}

// wholeGeneration refuses to stream from some of the shards while the slots of others
// are not there: setup makes those from where the first one stands, and what that
// one has confirmed by then would be missing in them.
func wholeGeneration(q querier, version int, cfg Config) error {
	if err := onlyGeneration(q, version, cfg); err != nil || cfg.Shard.Count < 2 {
		return err
	}
	slots, err := shardSlots(q, version, cfg.Shard.Slot)
	if err != nil || len(slots) >= cfg.Shard.Count {
		return err
	}
	return &Error{
		Kind: KindRefused, Reason: ReasonSlotMissing, Op: "look at the shards", Subject: fmt.Sprintf("the slots of %d shards", cfg.Shard.Count),
		Err: fmt.Errorf("%d of them exist", len(slots)), Hint: "run `cdc-relay setup` if it was cut short; if slots were dropped, rows since then have to be inserted again: " + seeSendingAgain,
	}
}
