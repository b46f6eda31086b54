package router

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

// A row without a payload is a null value, a tombstone, for which no registry is asked; a JSON null is
// a payload.
func TestSchema_NullStaysANullValue(t *testing.T) {
	for name, m := range map[string]Mapping{
		"avro":        {Value: format.Avro, Schema: schemas.Config{Options: encode.Options{Kind: encode.Avro}}},
		"protobuf":    {Value: format.Protobuf, Schema: schemas.Config{Options: encode.Options{Kind: encode.Protobuf}}},
		"json_schema": {Value: format.JSONSchema, Schema: schemas.Config{Options: encode.Options{Kind: encode.JSONSchema}}},
		"check":       {Schema: schemas.Config{Check: true}},
	} {
		r, rel := mustNew(t, m), tracedTable(t)
		row := textRow(rel, testID, "order", "k", "Placed", null, null, null)
		if _, rec := routed(t, r, row); rec.Value != nil {
			t.Errorf("%s: %x", name, rec.Value)
		}
		m.TombstoneOnEmpty = true
		r, rel = mustNew(t, m), table(t, "id uuid", "aggregate_type varchar", "aggregate_id varchar", "event_type varchar", "payload text")
		if _, rec := routed(t, r, textRow(rel, testID, "order", "k", "Placed", " ")); rec.Value != nil {
			t.Errorf("%s, empty: %x", name, rec.Value)
		}
		err := r.Route(new(record.Buffer), textRow(rel, testID, "order", "k", "Placed", "null"))
		if _, need := errors.AsType[*schemas.Need](err); need == (name == "check") || err == nil {
			t.Errorf("%s, JSON null: %v", name, err)
		}
	}
}

// A subject that no registry can have is the row's fault: it is asked for nowhere, and the value of the
// column is in no message.
func TestSchema_RejectsASubjectThatNoRegistryTakes(t *testing.T) {
	r, rel := mustNew(t, Mapping{Value: format.Avro, Schema: schemas.Config{Subject: "${event_type}", Options: encode.Options{Kind: encode.Avro}}}), tracedTable(t)
	for event, refused := range map[string]bool{".": true, "..": true, strings.Repeat("s", 1025): true, "...": false, strings.Repeat("s", 1024): false, "a/b": false} {
		err := r.Route(new(record.Buffer), textRow(rel, testID, "order", "k", event, "{}", null, null))
		rejection, rejected := errors.AsType[*record.RowError](err)
		if rejected != refused || rejected && (rejection.Reason != fault.ReasonEncode || rejection.Column != "event_type" || strings.Contains(err.Error(), "sss")) {
			t.Errorf("%.10s: %v", event, err)
		}
	}
}
