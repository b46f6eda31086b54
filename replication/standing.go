package replication

import (
	"context"
)

// Standing is where slots stand, and in which history.
type Standing struct {
	Origin Origin
	Slots  []StandingSlot // parallel to Config.Shards
}

// StandingSlot is one of them.
type StandingSlot struct {
	SlotInfo
	Name string
	Err  error // why no stream can start from it, apart from its owner
}

// Stand reads where the slots of cfg stand. It takes none of them, so it may be asked
// beside a relay, and changes nothing.
func Stand(ctx context.Context, cfg Config) (*Standing, error) {
	q, server, err := openServer(ctx, cfg, true)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(q.conn)
	if err := server.decodes(q); err != nil {
		return nil, err
	}
	if err := server.identify(q); err != nil {
		return nil, err
	}
	s := &Standing{Origin: server.origin()}
	for _, shard := range cfg.Shards() {
		one := StandingSlot{Name: shard.Slot}
		slot, err := readSlot(q, server.ServerVersion, shard.Slot)
		switch {
		case err == nil:
			one.SlotInfo, one.Err = slot.SlotInfo, slot.usable(shard.Slot)
		case Reason(err) == ReasonSlotMissing:
			one.Err = err
		default:
			return nil, err
		}
		s.Slots = append(s.Slots, one)
	}
	return s, nil
}
