package importer_test

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/debezium/importer"
)

// Every key of the connector has a remark, and none is dropped in silence.
func ExampleConvert() {
	connector := []byte(`{"name": "orders", "config": {
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector",
		"plugin.name": "pgoutput", "database.hostname": "db", "database.user": "debezium", "database.password": "hunter2", "database.dbname": "app",
		"topic.prefix": "app", "slot.name": "orders", "publication.name": "orders", "table.include.list": "public.outbox", "snapshot.mode": "no_data",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter"}}`)
	result, err := importer.Convert(connector, importer.Options{Name: "orders.json"})
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Form)
	for _, remark := range result.Remarks {
		if remark.Key == "slot.name" || remark.Key == "snapshot.mode" {
			fmt.Println(remark.Key, remark.Fate)
		}
	}
	// Output:
	// Kafka Connect JSON
	// slot.name carried
	// snapshot.mode not needed
}
