package router

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/jackc/pglogrepl"
)

// The table got a column before the relay was started, and loses it later. Rows from before
// it wait in the slot, and come again in a second session of the same process.
func TestRouter_JudgesAMissingColumnByPosition(t *testing.T) {
	shape := func(columns ...string) *replication.Relation {
		rel := &replication.Relation{OID: 1, Namespace: "public", Name: "outbox"}
		for _, c := range columns {
			rel.Columns = append(rel.Columns, replication.Column{Name: c, Type: 25})
		}
		return rel
	}
	older := []string{"id", "aggregate_type", "aggregate_id", "event_type", "payload"}
	newer := append(append([]string{}, older...), "traceparent")
	r, err := New(Config{Mappings: []Mapping{{Table: "public.outbox", Preset: "outbox"}}})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := r.Check(shape(newer...)); err != nil || found.Roles["trace"] != "traceparent" {
		t.Fatalf("%+v, %v", found, err)
	}
	route := func(commit pglogrepl.LSN, columns []string) error {
		row := &replication.Row{Txn: &replication.Txn{Commit: commit}, Ordinal: 1, Relation: shape(columns...)}
		for range columns {
			row.Values = append(row.Values, replication.Value{Kind: replication.Text, Data: []byte("x")})
		}
		return r.Route(new(Buffer), row)
	}
	for session := 1; session <= 2; session++ { // each announces the table anew
		if err := route(0x100, older); err != nil {
			t.Errorf("session %d, from before the column: %v", session, err)
		}
		if err := route(0x200, newer); err != nil {
			t.Errorf("session %d, with the column: %v", session, err)
		}
	}
	if err := route(0x300, older); err == nil {
		t.Error("the column was dropped, and its absence is no error")
	}
}
