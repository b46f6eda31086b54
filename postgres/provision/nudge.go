package provision

import (
	"context"
	"strings"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Nudge looks from beside a transaction how far slots are confirmed.
type Nudge struct{ q postgres.Querier }

// OpenNudge connects.
func OpenNudge(ctx context.Context, cfg postgres.Config) (*Nudge, error) {
	q, _, err := postgres.OpenServer(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	return &Nudge{q}, nil
}

// Close ends the connection.
func (n *Nudge) Close() { postgres.CloseQuietly(n.q.Conn) }

// End is the end of the WAL.
func (n *Nudge) End(ctx context.Context) (wal.LSN, error) {
	n.q.Ctx = ctx
	return postgres.WALInserted(n.q)
}

// Nudge commits something, so that the server writes out what it has and says so to the slots.
func (n *Nudge) Nudge(ctx context.Context) error {
	n.q.Ctx = ctx
	return postgres.Classify("write to the WAL", n.q.Exec("SELECT pg_catalog.pg_current_xact_id()"))
}

// Confirmed are the positions of slots, in the order of their names here.
func (n *Nudge) Confirmed(ctx context.Context, names []string) ([]wal.LSN, error) {
	n.q.Ctx = ctx
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = postgres.QuoteLiteral(name)
	}
	rows, err := n.q.All("SELECT coalesce(s.confirmed_flush_lsn, '0/0') FROM unnest(ARRAY[" + strings.Join(quoted, ", ") +
		"]::name[]) WITH ORDINALITY n(name, at) LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = n.name ORDER BY n.at")
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
