package sample

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// All rows are looked up over one connection; one that is lost costs a look, not the rest.
func TestFinder_KeepsItsConnection(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.OutboxDatabase(t, db)
	const a, b = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"
	db.Exec(t, `INSERT INTO outbox (id, "aggregateType") VALUES ($1, 'first'), ($2, 'second')`, a, b)
	f := NewFinder(cfg)
	defer f.Close()
	found := func(id, want string) (pid uint32) {
		t.Helper()
		row, err := f.FindRow(t.Context(), 0, "id", id)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(row.Values[1].Data); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
		return f.s.q.Conn.PID()
	}
	first := found(a, "first")
	if row, err := f.FindRow(t.Context(), 0, "id", "00000000-0000-0000-0000-00000000000c"); row != nil || err != nil {
		t.Errorf("found %v, %v", row, err)
	}
	if again := found(b, "second"); again != first {
		t.Errorf("connections %d and %d", first, again)
	}
	if _, err := f.FindRow(t.Context(), 0, "nope", a); err == nil {
		t.Error("a column that is not there was looked into")
	}
	db.Exec(t, "SELECT pg_terminate_backend($1)", int(first))
	if _, err := f.FindRow(t.Context(), 0, "id", a); postgres.KindOf(err) != fault.KindRetry {
		t.Errorf("over a connection that is lost: %v", err)
	}
	if again := found(a, "first"); again == first {
		t.Error("the connection is the lost one")
	}
}
