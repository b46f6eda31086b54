package router

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

var (
	older = []string{"id", "aggregate_type", "aggregate_id", "event_type", "payload"}
	newer = append(append([]string{}, older...), "traceparent")
)

// pinnedRouter has seen the table with its newest column. The function routes a row that
// has only some columns; each call announces the table anew.
func pinnedRouter(t *testing.T) (*Router, func(commit wal.LSN, ordinal uint64, columns []string) error) {
	t.Helper()
	shape := func(columns ...string) *wal.Relation {
		rel := &wal.Relation{OID: 1, Namespace: "public", Name: "outbox"}
		for _, c := range columns {
			rel.Columns = append(rel.Columns, wal.Column{Name: c, Type: 25})
		}
		return rel
	}
	r, err := New(Config{Mappings: []Mapping{{Table: "public.outbox", Preset: "outbox"}}})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := r.Pin(shape(newer...)); err != nil || found.Roles["trace"] != "traceparent" {
		t.Fatalf("%+v, %v", found, err)
	}
	return r, func(commit wal.LSN, ordinal uint64, columns []string) error {
		row := &wal.Row{Txn: &wal.Txn{Commit: commit}, Ordinal: ordinal, Relation: shape(columns...)}
		for range columns {
			row.Values = append(row.Values, wal.Value{Kind: wal.Text, Data: []byte("x")})
		}
		return r.Route(new(record.Buffer), row)
	}
}

// The table got a column before the relay was started, and loses it later. Rows from before
// it wait in the slot, and come again in a second session of the same process.
func TestRouter_JudgesAMissingColumnByPosition(t *testing.T) {
	_, route := pinnedRouter(t)
	for session := 1; session <= 2; session++ { // each announces the table anew
		if err := route(0x100, 1, older); err != nil {
			t.Errorf("session %d, from before the column: %v", session, err)
		}
		if err := route(0x200, 1, newer); err != nil {
			t.Errorf("session %d, with the column: %v", session, err)
		}
	}
	if err := route(0x300, 1, older); err == nil {
		t.Error("the column was dropped, and its absence is no error")
	}
}

// A transaction wrote a row, added the column and wrote another row. Its rows share the commit.
func TestRouter_JudgesAMissingColumnByTheRowsPlaceInItsTransaction(t *testing.T) {
	_, route := pinnedRouter(t)
	for session := 1; session <= 2; session++ {
		if err := route(0x100, 1, older); err != nil {
			t.Errorf("session %d, before the column was added: %v", session, err)
		}
		if err := route(0x100, 2, newer); err != nil {
			t.Errorf("session %d, with the column: %v", session, err)
		}
	}
	if err := route(0x100, 3, older); err == nil {
		t.Error("the column was dropped in the transaction, and its absence is no error")
	}
}

// A failover lost the transaction that added the column. Rows without it now have positions
// behind the one at which the column was seen.
func TestRouter_ForgetsBehindAForkWhereAColumnWasSeen(t *testing.T) {
	r, route := pinnedRouter(t)
	if err := route(0x200, 1, newer); err != nil {
		t.Fatal(err)
	}
	r.Forked()
	if err := route(0x300, 1, older); err != nil {
		t.Errorf("behind the fork, before the column is added there: %v", err)
	}
	if err := route(0x400, 1, newer); err != nil {
		t.Error(err)
	}
	if err := route(0x500, 1, older); err == nil {
		t.Error("the column was dropped behind the fork, and its absence is no error")
	}
}
