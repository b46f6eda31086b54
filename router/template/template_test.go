package template_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/template"
)

// A filter is for the column that it stands behind, and for no text before or behind that.
func TestFilters_ChangeTheirOwnColumnAlone(t *testing.T) {
	outbox := &wal.Relation{Namespace: "public", Name: "outbox", Columns: []wal.Column{{Name: "type", Type: 25}, {Name: "tenant", Type: 25}}}
	row := &wal.Row{Relation: outbox, Values: []wal.Value{{Kind: wal.Text, Data: []byte("Billing::Invoice")}, {Kind: wal.Text, Data: []byte("Åsa & Co")}}}
	for text, want := range map[string]string{
		"From: A b ${type|topic} Z: y":    "From: A b Billing--Invoice Z: y",
		"From: A b ${type|lower} Z: y":    "From: A b billing::invoice Z: y",
		"From: A b ${type|upper} Z: y":    "From: A b BILLING::INVOICE Z: y",
		"${type}, ${tenant|topic}":        "Billing::Invoice, -sa---Co",
		"${type}, ${tenant|lower}":        "Billing::Invoice, åsa & co",
		"${tenant|topic|lower}: ${type}!": "-sa---co: Billing::Invoice!",
	} {
		parsed, err := template.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		bound, err := parsed.Bind(func(name string) (*column.Source, int, error) {
			source, err := column.NewSource(outbox, name)
			return source, 0, err
		})
		if err != nil {
			t.Fatal(err)
		}
		var buffer record.Buffer
		var scratch []byte
		if got, err := bound.Header(&buffer, row, &scratch); err != nil || string(got) != want {
			t.Errorf("%s gives %q and %v, want %q", text, got, err, want)
		}
	}
}
