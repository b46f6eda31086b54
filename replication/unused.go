package replication

import (
	"context"
	"errors"

	"github.com/jackc/pglogrepl"
)

// Unused returns the system identifier of the server, and an *Error of KindBusy when
// somebody streams from one of cfg's slots. A relay that has lost its connection, or
// is blocked and lets the slot go between its attempts, is not seen.
func Unused(ctx context.Context, cfg Config) (system string, err error) {
	q, server, err := openServer(ctx, cfg, true)
	if err != nil {
		return "", err
	}
	defer closeQuietly(q.conn)
	identity, err := pglogrepl.IdentifySystem(ctx, q.conn)
	if err != nil {
		return "", classify("identify the server", err)
	}
	for _, shard := range cfg.Shards() {
		row, err := readSlot(q, server.ServerVersion, shard.Slot)
		if err != nil {
			return "", err
		}
		if !row.Active {
			continue
		}
		err = row.busy(q, shard.Slot)
		if busy, ok := errors.AsType[*Error](err); ok && busy.Kind == KindBusy {
			busy.Op, busy.Hint = "forget the checkpoint of", "stop that one first"
		}
		return "", err
	}
	return identity.SystemID, nil
}
