package debezium_test

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/debezium"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// The options are the connector's own; the records are those that Debezium writes.
func ExampleConfig() {
	options := debezium.Config{
		{Name: "topic.prefix", Value: "app"}, {Name: "extended.headers.enabled", Value: "false"},
		{Name: "key.converter", Value: "org.apache.kafka.connect.storage.StringConverter"},
		{Name: "value.converter", Value: "org.apache.kafka.connect.storage.StringConverter"},
		{Name: "transforms", Value: "outbox"}, {Name: "transforms.outbox.type", Value: "io.debezium.transforms.outbox.EventRouter"},
	}
	routes, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Connector: options}}})
	if err != nil {
		panic(err)
	}
	const text, uuid, jsonb = 25, 2950, 3802
	columns := []wal.Column{
		{Name: "id", Type: uuid, TypeName: "uuid"}, {Name: "aggregatetype", Type: text, TypeName: "text"},
		{Name: "aggregateid", Type: text, TypeName: "text"}, {Name: "payload", Type: jsonb, TypeName: "jsonb"},
	}
	meta := make([]wal.ColumnMeta, len(columns)) // what the catalog knows of them
	for i, column := range columns {
		meta[i] = wal.ColumnMeta{NotNull: true, Base: column.Type, TypeName: column.TypeName, TypeKind: 'b'}
	}
	meta[0].Key = 1
	row := &wal.Row{
		Txn: &wal.Txn{XID: 7, Commit: 0x100, End: 0x130, Time: time.Unix(1000, 0)}, Ordinal: 1,
		Relation: &wal.Relation{Namespace: "public", Name: "outbox", Columns: columns, Meta: meta},
	}
	for _, value := range []string{"0b1e0cbc-7d3a-4f6e-9f0a-3d1f6f6f0001", "Order", "42", `{"total": 9}`} {
		row.Values = append(row.Values, wal.Value{Kind: wal.Text, Data: []byte(value)})
	}
	var buffer record.Buffer
	if err := routes.Route(&buffer, row); err != nil {
		panic(err)
	}
	for _, rec := range buffer.Records {
		fmt.Printf("%s %s %s\n", rec.Topic, rec.Key, rec.Value)
	}
	// Output:
	// outbox.event.Order 42 {"total": 9}
}
