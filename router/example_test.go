package router_test

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// A mapping is compiled once for a table, with its first row.
func Example() {
	routes, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Preset: "outbox"}}})
	if err != nil {
		panic(err)
	}
	outbox := &wal.Relation{Namespace: "public", Name: "outbox", Columns: []wal.Column{
		{Name: "id", Type: 2950, TypeName: "uuid"}, {Name: "aggregate_type", Type: 25, TypeName: "text"}, {Name: "aggregate_id", Type: 25, TypeName: "text"},
		{Name: "event_type", Type: 25, TypeName: "text"}, {Name: "payload", Type: 3802, TypeName: "jsonb"},
	}}
	text := func(s string) wal.Value { return wal.Value{Kind: wal.Text, Data: []byte(s)} }
	row := &wal.Row{
		Txn: &wal.Txn{XID: 7, Commit: 0x100, End: 0x130, Time: time.Unix(1000, 0)}, Ordinal: 1, Relation: outbox,
		Values: []wal.Value{text("0b1e0cbc-7d3a-4f6e-9f0a-3d1f6f6f0001"), text("order"), text("42"), text("OrderPlaced"), text(`{"total": 9}`)},
	}
	var buf record.Buffer // used again for the next rows
	if err := routes.Route(&buf, row); err != nil {
		panic(err)
	}
	for _, rec := range buf.Records {
		fmt.Printf("%s %s %s\n", rec.Topic, rec.Key, rec.Value)
	}
	// Output:
	// order-events 42 {"total": 9}
}
