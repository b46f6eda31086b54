package replication

import (
	"context"
	"errors"
)

// Unused returns an *Error of KindBusy when somebody streams from one of cfg's slots. A
// relay that has lost its connection, or is blocked and lets the slot go between its
// attempts, is not seen. From a slot that does not exist nobody streams.
func Unused(ctx context.Context, cfg Config) error {
	q, server, err := openServer(ctx, cfg, true)
	if err != nil {
		return err
	}
	defer closeQuietly(q.conn)
	for _, shard := range cfg.Shards() {
		row, err := readSlot(q, server.ServerVersion, shard.Slot)
		if Reason(err) == ReasonSlotMissing {
			continue
		}
		if err != nil {
			return err
		}
		if !row.Active {
			continue
		}
		err = row.busy(q, shard.Slot)
		if busy, ok := errors.AsType[*Error](err); ok && busy.Kind == KindBusy {
			busy.Op, busy.Hint = "forget the checkpoint of", "stop that one first"
		}
		return err
	}
	return nil
}
