package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A message outside any transaction is told with the end of its record, where the next
// record may begin: a position alone does not tell the two apart.
func TestPostgresAMessageEndsWhereACommitMayBegin(t *testing.T) {
	db := harness.Postgres(t)
	cfg := orders(t, db)
	cfg.Messages = []string{"mine"}
	const each = 20
	for range each {
		db.Exec(t, "BEGIN; INSERT INTO outbox (aggregate_id) VALUES ('a'); SELECT pg_logical_emit_message(false, 'mine', '{}'); COMMIT")
	}
	r := read(t, cfg)
	var rows []wal.Row
	for len(rows) < 2*each {
		b, err := r.next()
		if b == nil {
			t.Fatalf("after %d rows: %v", len(rows), err)
		}
		for _, row := range b.Rows {
			txn := *row.Txn
			rows = append(rows, wal.Row{Txn: &txn, Ordinal: row.Ordinal})
		}
		r.settle(b)
	}
	equal := 0
	for i := 0; i < len(rows); i += 2 {
		message, row := rows[i], rows[i+1]
		if !message.Txn.Time.IsZero() || row.Txn.Time.IsZero() || row.Txn.Commit < message.Txn.Commit {
			t.Fatalf("message at %s (%s), then a row committing at %s", message.Txn.Commit, message.Txn.Time, row.Txn.Commit)
		}
		if row.Txn.Commit == message.Txn.Commit {
			equal++
		}
	}
	if equal == 0 { // others write in between now and then
		t.Errorf("none of %d commits begins where the message before it ends", each)
	}
}
