package setup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// carried is what is known of the rows before the slots of the former shards, in each table where that
// is known of all of them. It holds of copies of these slots too: what lies between is delivered.
type carried map[uint32]stored.BeforeSlot

// former is the configuration with another number of shards.
func former(cfg relay.Config, shards int) relay.Config {
	r := &cfg.Replication
	r.Slot, r.Publication, r.Shard.Count = r.Shard.Slot, r.Shard.Publication, shards
	return cfg
}

// standing reads where the slots are, and opens the checkpoint topic, which the caller closes.
func (s *Setup) standing(ctx context.Context) (*watch.Positions, *topics.Ledger, error) {
	standing, err := watch.ReadPositions(ctx, s.settings.Replication)
	if err != nil {
		return nil, nil, err
	}
	ledger, err := topics.NewLedger(s.settings.Kafka.Connection, s.settings.CheckpointTopic)
	return standing, ledger, err
}

// known reads what is known, while the slots of the configuration exist. It wants the same of them as a
// proof does: the record is of this slot, nobody has moved the slot, and neither the publication nor the
// relay lacked the table.
func (s *Setup) known(ctx context.Context) (carried, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	standing, ledger, err := s.standing(ctx)
	if err != nil {
		return nil, err
	}
	defer ledger.Close()
	b, err := newBefore(ctx, s, ledger, standing.Origin)
	if err != nil {
		return nil, err
	}
	all := make(carried)
	for i, slot := range standing.Slots {
		cfg := s.settings.OfShard(i, len(standing.Slots))
		of, err := b.knownOf(ctx, cfg, &slot, standing.WALEnd)
		if err != nil {
			return nil, err
		}
		for oid, rec := range of {
			all.add(oid, rec, i == 0)
		}
		for oid := range all {
			if _, too := of[oid]; !too {
				delete(all, oid)
			}
		}
	}
	return all, nil
}

// add joins what is known of two slots.
func (c carried) add(oid uint32, rec stored.BeforeSlot, first bool) {
	was, found := c[oid]
	switch {
	case first:
		c[oid] = rec
	case found:
		was.Ended = min(was.Ended, rec.Ended)
		if rec.Before == stored.BeforeDeclared || was.Before == stored.BeforeNone {
			was.Before = rec.Before
		}
		c[oid] = was
	}
}

func (b *before) knownOf(ctx context.Context, cfg relay.Config, slot *watch.SlotPosition, end wal.LSN) (map[uint32]stored.BeforeSlot, error) {
	positions, err := checkpoints.Read(ctx, b.ledger, cfg.Guarantee, b.origin.SystemID, slot.Name)
	if err != nil || slot.Err != nil || len(positions) == 0 {
		return nil, err
	}
	if _, err := cfg.Resume().ConfirmedUpTo(positions, b.origin, slot.Confirmed); err != nil {
		return nil, err
	}
	if beyond := cfg.Resume().BeyondWAL(positions, b.origin, end); beyond != 0 {
		return nil, fmt.Errorf("topic has the position %s of slot %s, and the server's WAL ends at %s: it was restored from an older copy", beyond, slot.Name, end)
	}
	records, err := b.ledger.Read(ctx, stored.BeforeSlotSuffix(b.origin.SystemID, slot.Name))
	if err != nil {
		return nil, err
	}
	streamed, err := stored.ParseStreamed(records[stored.StreamedKey(b.origin.SystemID, slot.Name)])
	if err != nil {
		return nil, nil //nolint:nilerr // nobody knows which tables the relay had
	}
	found := make(map[uint32]stored.BeforeSlot)
	for _, t := range b.tables {
		rec, err := stored.ParseBeforeSlot(records[stored.BeforeSlotKey(b.origin.SystemID, slot.Name, t.OID)])
		if err == nil && rec.Before.Known() && rec.Timeline == b.origin.Timeline && rec.PartOf(b.origin) && rec.Positions == b.kind && rec.Point <= slot.Confirmed &&
			rec.Published != "" && rec.Published == t.Published[cfg.Replication.Publication] && slices.Contains(streamed.Tables, t.OID) {
			found[t.OID] = rec
		}
	}
	return found, nil
}

// carry writes what was known of the rows before the former slots as known of those before the new ones.
// Nothing of an earlier slot's name is left then. A table that a relay of the new slots lacks stays unknown.
func (s *Setup) carry(ctx context.Context, known carried) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	standing, ledger, err := s.standing(ctx)
	if err != nil {
		return err
	}
	defer ledger.Close()
	b, err := newBefore(ctx, s, ledger, standing.Origin)
	if err != nil {
		return err
	}
	for _, slot := range standing.Slots {
		if slot.Err != nil {
			return slot.Err
		}
		if err := b.unknown(ctx, slot.Name, slot.Confirmed); err != nil {
			return err
		}
		passed, err := b.passedOver(ctx, slot.Name) // by a relay that streams already
		if err != nil {
			return err
		}
		for i := range b.tables {
			t := b.tables[i]
			rec, found := known[t.OID]
			if !found || slices.ContainsFunc(passed, func(p wal.Table) bool { return p == t.Table }) {
				continue
			}
			t.Ended = rec.Ended
			if err := b.write(ctx, slot.Name, slot.Confirmed, &t, rec.Before); err != nil {
				return err
			}
			s.say("wrote to topic %s that what is known of the rows of %s from before the former slots holds of slot %s", s.settings.CheckpointTopic, t.Table, slot.Name)
		}
	}
	return nil
}
