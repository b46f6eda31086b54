package provision

import (
	"context"
	"errors"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
)

// CheckIdle returns a *fault.Error of KindBusy when somebody streams from one of cfg's slots. A
// relay that has lost its connection, or is blocked and lets the slot go between its
// attempts, is not seen. From a slot that does not exist nobody streams.
func CheckIdle(ctx context.Context, cfg postgres.Config) error {
	q, server, err := postgres.OpenServer(ctx, cfg, true)
	if err != nil {
		return err
	}
	defer postgres.CloseQuietly(q.Conn)
	for _, shard := range cfg.Shards() {
		row, err := catalog.ReadSlot(q, server.ServerVersion, shard.Slot)
		if postgres.Reason(err) == fault.ReasonSlotMissing {
			continue
		}
		if err != nil {
			return err
		}
		if !row.Active {
			continue
		}
		err = row.Busy(q, shard.Slot)
		if busy, ok := errors.AsType[*fault.Error](err); ok && busy.Kind == fault.KindBusy {
			busy.Op, busy.Hint = "forget the checkpoint of", "stop that one first"
		}
		return err
	}
	return nil
}
