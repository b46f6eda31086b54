package provision

import (
	"context"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// SlotReader reads how far slots are confirmed, over a connection of its own: beside a transaction that
// is open.
type SlotReader struct{ q postgres.Querier }

// OpenSlotReader connects.
func OpenSlotReader(ctx context.Context, cfg postgres.Config) (*SlotReader, error) {
	q, _, err := postgres.OpenServer(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	return &SlotReader{q}, nil
}

// Close ends the connection.
func (r *SlotReader) Close() { postgres.CloseQuietly(r.q.Conn) }

// End is the end of the WAL.
func (r *SlotReader) End(ctx context.Context) (wal.LSN, error) {
	r.q.Ctx = ctx
	return postgres.WALInserted(r.q)
}

// Nudge commits something, so that the server writes out what it has and says so to the slots.
func (r *SlotReader) Nudge(ctx context.Context) error {
	r.q.Ctx = ctx
	return postgres.Classify("write to the WAL", r.q.Exec("SELECT pg_catalog.pg_current_xact_id()"))
}

// Confirmed are the positions of slots, in the order of their names here.
func (r *SlotReader) Confirmed(ctx context.Context, names []string) ([]wal.LSN, error) {
	r.q.Ctx = ctx
	rows, err := r.q.All("SELECT coalesce(s.confirmed_flush_lsn, '0/0') FROM unnest(" + postgres.NamesSQL(names) +
		") WITH ORDINALITY n(name, at) LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = n.name ORDER BY n.at")
	if err != nil {
		return nil, postgres.Classify("look at the slots", err)
	}
	all := make([]wal.LSN, len(rows))
	for i, row := range rows {
		if all[i], err = wal.ParseLSN(row[0].Text); err != nil {
			return nil, err
		}
	}
	return all, nil
}
