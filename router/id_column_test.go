package router

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Who looks for a row by the header id of its record has to know which column that is.
func TestRouter_KnowsTheColumnOfTheHeaderID(t *testing.T) {
	rel := &wal.Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: []wal.Column{{Name: "id", Type: 2950}, {Name: "topic", Type: 25}, {Name: "n", Type: 20}, {Name: "payload", Type: 3802}}}
	columns := func(id string) Mapping {
		return Mapping{Table: "public.outbox", Preset: "generic", Topic: "t", Columns: Columns{ID: id, Payload: "payload"}}
	}
	replaced := func(name string) Mapping {
		m := columns("id")
		m.Headers = []HeaderMapping{{Name: name, Source: "n"}}
		return m
	}
	for name, tt := range map[string]struct {
		mapping Mapping
		want    record.IDColumn
	}{
		"the usual":      {columns(""), record.IDColumn{Name: "id", Type: 2950}},
		"another":        {columns("n"), record.IDColumn{Name: "n", Type: 20}},
		"member":         {columns("payload#/id"), record.IDColumn{}},
		"replaced":       {replaced("id"), record.IDColumn{}},
		"another header": {replaced("tenant"), record.IDColumn{Name: "id", Type: 2950}},
	} {
		r, err := New(Config{Mappings: []Mapping{tt.mapping}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		explained, err := r.Pin(rel)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		row := &wal.Row{Txn: &wal.Txn{Commit: 1}, Ordinal: 1, Relation: rel}
		if got := r.IDColumn(row); got != tt.want || explained.ID != tt.want {
			t.Errorf("%s: %+v and %+v, want %+v", name, got, explained.ID, tt.want)
		}
	}
}
