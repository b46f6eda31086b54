package watch

import (
	"context"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Positions is where slots stand, and in which history.
type Positions struct {
	Origin wal.Origin
	WALEnd wal.LSN
	Slots  []SlotPosition // parallel to Config.Shards
}

// SlotPosition is one of them.
type SlotPosition struct {
	catalog.SlotInfo
	Name string
	Err  error // why no stream can start from it, apart from its owner
}

// ReadPositions reads where the slots of cfg stand. It takes none of them, so it may be asked
// beside a relay, and changes nothing.
func ReadPositions(ctx context.Context, cfg postgres.Config) (*Positions, error) {
	q, server, err := postgres.OpenServer(ctx, cfg, true)
	if err != nil {
		return nil, err
	}
	defer postgres.CloseQuietly(q.Conn)
	if err := server.CheckDecoding(q); err != nil {
		return nil, err
	}
	if err := server.Identify(q); err != nil {
		return nil, err
	}
	s := &Positions{Origin: server.Origin(), WALEnd: server.WALEnd}
	for _, shard := range cfg.Shards() {
		one := SlotPosition{Name: shard.Slot}
		slot, err := catalog.ReadSlot(q, server.ServerVersion, shard.Slot)
		switch {
		case err == nil:
			one.SlotInfo, one.Err = slot.SlotInfo, slot.Usable(shard.Slot)
		case postgres.Reason(err) == fault.ReasonSlotMissing:
			one.Err = err
		default:
			return nil, err
		}
		s.Slots = append(s.Slots, one)
	}
	return s, nil
}
