package template_test

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/template"
)

// A template is parsed once and bound once for each relation.
func Example() {
	parsed, err := template.Parse("${aggregate_type|lower}/${tenant|default:none}")
	if err != nil {
		panic(err)
	}
	outbox := &wal.Relation{Namespace: "public", Name: "outbox", Columns: []wal.Column{{Name: "aggregate_type", Type: 25}, {Name: "tenant", Type: 25}}}
	bound, err := parsed.Bind(func(name string) (*column.Source, int, error) {
		source, err := column.NewSource(outbox, name)
		return source, 0, err
	})
	if err != nil {
		panic(err)
	}
	var buffer record.Buffer
	var scratch []byte
	row := &wal.Row{Relation: outbox, Values: []wal.Value{{Kind: wal.Text, Data: []byte("Order")}, {Kind: wal.Null}}}
	value, err := bound.Header(&buffer, row, &scratch)
	if err != nil {
		panic(err)
	}
	fmt.Println(parsed.Names())
	fmt.Printf("%s\n", value)
	// Output:
	// [aggregate_type tenant]
	// order/none
}
