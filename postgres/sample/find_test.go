package sample

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
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
	all := func(id string) (got string, err error) {
		err = f.FindRows(t.Context(), 0, "id", id, func(row *wal.Row) error { got += string(row.Values[1].Data); return nil })
		return got, err
	}
	found := func(id, want string) (pid uint32) {
		t.Helper()
		if got, err := all(id); err != nil || got != want {
			t.Errorf("%s: %q and %v, want %q", id, got, err, want)
		}
		return f.s.q.Conn.PID()
	}
	first := found(a, "first")
	if got, err := all("00000000-0000-0000-0000-00000000000c"); got != "" || err != nil {
		t.Errorf("found %q, %v", got, err)
	}
	if again := found(b, "second"); again != first {
		t.Errorf("connections %d and %d", first, again)
	}
	if err := f.FindRows(t.Context(), 0, "nope", a, nil); err == nil {
		t.Error("a column that is not there was looked into")
	}
	db.Exec(t, "SELECT pg_terminate_backend($1)", int(first))
	if _, err := all(a); postgres.KindOf(err) != fault.KindRetry {
		t.Errorf("over a connection that is lost: %v", err)
	}
	if again := found(a, "first"); again == first {
		t.Error("the connection is the lost one")
	}
}

// Where no unique index prevents it, several rows have one value; whoever looks may end early.
func TestFinder_GivesEachRow(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE outbox (id int, payload text); INSERT INTO outbox VALUES (1, 'a'), (2, 'b'), (1, 'c'), (1, NULL)`)
	f := NewFinder(postgrestest.Config(t, db))
	defer f.Close()
	enough := errors.New("enough")
	for want, most := range map[string]int{"ac-": 9, "ac": 2} {
		got := ""
		err := f.FindRows(t.Context(), 0, "id", "1", func(row *wal.Row) error {
			if most--; most < 0 {
				return enough
			}
			if got += string(row.Values[1].Data); row.Values[1].Kind == wal.Null {
				got += "-"
			}
			return nil
		})
		if got != want || err != nil && !errors.Is(err, enough) || (err == nil) != (len(want) == 3) {
			t.Errorf("found %q, %v; want %q", got, err, want)
		}
	}
}

// With row_security on, the server would hide the row without a word.
func TestFinder_RefusesToLookThroughAPolicy(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE outbox (id int, payload text); INSERT INTO outbox VALUES (1, 'a'); ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`)
	cfg := postgrestest.AsReader(t, db, postgrestest.Config(t, db))
	f := NewFinder(cfg)
	defer f.Close()
	err := f.FindRows(t.Context(), 0, "id", "1", func(*wal.Row) error { return nil })
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, "row-level security of table public.outbox applies to role \"role", "BYPASSRLS")
}
