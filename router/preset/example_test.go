package preset_test

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/preset"
)

// Columns tell which preset a table has, and which column has which role.
func ExampleGiven_Recognise() {
	outbox := &wal.Relation{Namespace: "public", Name: "outbox", Columns: []wal.Column{
		{Name: "id", Type: 2950}, {Name: "aggregate_type", Type: 1043}, {Name: "aggregate_id", Type: 1043},
		{Name: "event_type", Type: 1043}, {Name: "payload", Type: 3802},
	}}
	given := preset.Given{Table: "public.outbox"}
	shape, err := given.Recognise(outbox)
	if err != nil {
		panic(err)
	}
	fmt.Println(shape.Preset.Name, shape.Preset.Topic)
	for role, column := range shape.Columns {
		if column != "" {
			fmt.Println(preset.Role(role), column)
		}
	}
	// Output:
	// outbox ${routedByValue}-events
	// id id
	// key aggregate_id
	// route aggregate_type
	// type event_type
	// payload payload
}
