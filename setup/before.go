package setup

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/promise"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// lookPatience is how long it may take to find out which tables are empty: open transactions
// are waited for.
const lookPatience = 30 * time.Second

// before writes what is known of the rows that lie before slots. See stored.BeforeSlot for
// the order in which that and a slot's position are written.
type before struct {
	ledger *topics.Ledger
	origin wal.Origin
	cfg    postgres.Config
	kind   stored.Kind
	tables []provision.TableState

	version string               // of the program
	begun   []watch.SlotPosition // whose first position is written
}

func newBefore(ctx context.Context, s *Setup, ledger *topics.Ledger, origin wal.Origin) (*before, error) {
	b := &before{ledger: ledger, origin: origin, cfg: s.settings.Replication, kind: stored.Promises, version: s.version}
	if s.settings.Guarantee == relay.ExactlyOnce {
		b.kind = stored.Checkpoints
	}
	var err error
	b.tables, err = provision.ReadTables(ctx, b.cfg)
	return b, err
}

// unknown takes back what was known of a slot, or of an earlier one of its name. It comes before the
// slot's first position, and before positions are forgotten.
func (b *before) unknown(ctx context.Context, slot string, point wal.LSN) error {
	if err := promise.TakeBack(ctx, b.ledger, b.origin.SystemID, slot, b.version); err != nil {
		return err
	}
	for _, table := range b.tables {
		if err := b.write(ctx, slot, point, &table, stored.BeforeUnknown); err != nil {
			return err
		}
	}
	return nil
}

// begins reports that the first position of a slot is written.
func (b *before) begins(slot watch.SlotPosition) { b.begun = append(b.begun, slot) }

// empty finds the tables without a row before the slots that begin.
func (b *before) empty(ctx context.Context) error {
	if len(b.begun) == 0 {
		return nil
	}
	tables, err := provision.FindEmpty(ctx, b.cfg, b.tables)
	if err != nil {
		return err
	}
	for _, slot := range b.begun {
		for _, table := range tables {
			if !table.Empty {
				continue
			}
			if err := b.write(ctx, slot.Name, slot.Confirmed, &table, stored.BeforeNone); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *before) write(ctx context.Context, slot string, point wal.LSN, table *provision.TableState, known stored.Before) error {
	publication := ""
	for _, shard := range b.cfg.Shards() {
		if shard.Slot == slot {
			publication = shard.Publication
		}
	}
	rec := stored.BeforeSlot{
		System: b.origin.SystemID, Timeline: b.origin.Timeline, Began: b.origin.Begin(b.origin.Timeline), Slot: slot, Table: table.Table.String(), OID: table.OID,
		Before: known, Point: point, Positions: b.kind, Published: table.Published[publication], Ended: table.Ended, At: time.Now(), Relay: b.version,
	}
	return b.ledger.Write(ctx, stored.BeforeSlotKey(rec.System, slot, rec.OID), rec.Encode())
}
