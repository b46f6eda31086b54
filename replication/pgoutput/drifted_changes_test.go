package pgoutput

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// A table that asked for other changes and was renamed, moved or replaced: its updates, deletes and
// truncates were counted as somebody else's, and the commit behind them was confirmed.
func TestDrift_ChangesOfTheTableAreNotReadPast(t *testing.T) {
	cfg := testConfig
	cfg.Wants = []wal.Wants{{Update: true, Delete: true, Truncate: true}}
	for name, announced := range map[string]struct {
		relation pgoutputtest.Message
		oid      uint32
	}{
		"renamed":  {pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "renamed", pgoutputtest.OutboxColumns...), pgoutputtest.OutboxOID},
		"replaced": {pgoutputtest.Relation(pgoutputtest.OtherOID, "public", "outbox", pgoutputtest.OutboxColumns...), pgoutputtest.OtherOID},
	} {
		for what, change := range map[string]pgoutputtest.Message{
			"insert":   pgoutputtest.Insert(announced.oid, "1", "a"),
			"update":   pgoutputtest.Message{'U'}.U32(announced.oid).U8('N').Tuple("1", "a"),
			"delete":   pgoutputtest.Message{'D'}.U32(announced.oid).U8('O').Tuple("1", "a"),
			"truncate": pgoutputtest.Message{'T'}.U32(1).U8(0).U32(announced.oid),
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				d := NewDecoder(cfg)
				d.Expect(&wal.Relation{OID: pgoutputtest.OutboxOID, Namespace: "public", Name: "outbox"})
				decodeAll(t, d, pgoutputtest.Begin(0x200, 7), announced.relation)
				if err := d.Decode(change, 0x210); err == nil || postgres.KindOf(err) != fault.KindDrift {
					after := d.Decode(pgoutputtest.Commit(0x200, 0x230), 0x200)
					b := d.Take()
					t.Errorf("error %v; after the commit (%v): %d rows, through %s", err, after, len(b.Rows), b.Through)
				}
			})
		}
	}
}
