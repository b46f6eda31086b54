package router

import (
	"errors"
	"testing"

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
