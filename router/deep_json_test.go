package router

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// nested are documents of a depth.
func nested(kind string, depth int) string {
	switch kind {
	case "arrays":
		return strings.Repeat("[", depth) + strings.Repeat("]", depth)
	case "objects":
		return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
	case "both":
		return strings.Repeat(`{"a":[`, depth/2) + `"]}"` + strings.Repeat("]}", depth/2)
	case "beside":
		return `{"kind":"own","a":` + nested("both", depth) + `,"b":` + nested("arrays", depth) + `}`
	}
	return strings.Repeat(`{"a":[`, depth/2) // unclosed
}

// deepMappings are the ways in which a document in the column doc is read.
func deepMappings() map[string]Mapping {
	fields, payload := []Field{{"kind", "event_type"}}, Columns{Payload: "doc"}
	all := map[string]Mapping{
		"id":                {Columns: Columns{ID: "doc#/a"}},
		"key":               {Columns: Columns{Key: "doc#/a"}},
		"key in json":       {Columns: Columns{Key: "doc#/a/0"}, Key: format.JSONString},
		"topic":             {Topic: "t.${doc#/b|default:none}"},
		"header":            {Headers: []HeaderMapping{{"h", "doc#/a/0/a"}}},
		"header template":   {Headers: []HeaderMapping{{"h", "x/${doc#/a}"}}},
		"headers column":    {Columns: Columns{Headers: "doc"}},
		"headers member":    {Columns: Columns{Headers: "doc#/a"}},
		"payload member":    {Columns: Columns{Payload: "doc#/a/0"}},
		"envelope":          {Columns: payload, Value: format.Envelope, ValueFields: fields},
		"envelope member":   {Columns: Columns{Payload: "doc#/a/0"}, Value: format.Envelope},
		"envelope field":    {Value: format.Envelope, ValueFields: []Field{{"f", "doc"}}},
		"merged":            {Columns: payload, Value: format.Merged, ValueFields: fields},
		"merged member":     {Columns: Columns{Payload: "doc#/a/0"}, Value: format.Merged},
		"merged field":      {Value: format.Merged, ValueFields: []Field{{"f", "doc#/a"}}},
		"tombstone":         {Columns: payload, TombstoneOnEmpty: true},
		"eventuate":         {Columns: Columns{Payload: "doc", Headers: "extra"}, Value: format.Eventuate},
		"eventuate headers": {Columns: Columns{Headers: "doc"}, Value: format.Eventuate},
		"event attribute":   {Value: format.CloudEvents, ValueFields: []Field{{"ext", "doc#/a"}}},
		"event member":      {Columns: Columns{Payload: "doc#/a/0"}, Value: format.CloudEvents},
	}
	for _, format := range []string{format.Raw, format.JSONString, format.CloudEvents, format.CloudEventsBinary} {
		all[format] = Mapping{Columns: payload, Value: format}
	}
	return all
}

// deepest is what no route may take, by far: a document of 400 KB takes milliseconds, and
// what is quadratic in its length half a minute.
const deepest = 15 * time.Second

// However deeply a document is nested, it passes or the row is rejected with the column's
// name, in a time that its length decides.
func TestRoute_DeepJSONPassesOrNamesItsColumn(t *testing.T) {
	length := 400_000
	if testing.Short() {
		length = 40_000
	}
	docs := map[string]string{"10 000": nested("both", 10_000), "10 001": nested("arrays", 10_001)}
	for kind, each := range map[string]int{"arrays": 2, "objects": 6, "both": 4, "beside": 6, "unclosed": 3} {
		docs[kind] = nested(kind, length/each)
	}
	for name, m := range deepMappings() {
		t.Run(name, func(t *testing.T) {
			if m.Topic == "" {
				m.Topic = "events"
			}
			passed := 0
			for _, typ := range []string{"json", "jsonb", "text", "bytea"} {
				rel := table(t, "id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload json", "extra json", "doc "+typ)
				r := mustNew(t, m)
				for kind, doc := range docs {
					if kind == "unclosed" && strings.HasPrefix(typ, "json") {
						continue // the server has checked it
					}
					text := doc
					if typ == "bytea" {
						text = `\x` + hex.EncodeToString([]byte(doc))
					}
					var b record.Buffer
					began := time.Now()
					err := r.Route(&b, textRow(rel, testID, "order", "o-1", "created", `{"a":1}`, `{"k":"v"}`, text))
					if took := time.Since(began); took > deepest {
						t.Fatalf("%s of %s takes %s", typ, kind, took)
					}
					if err == nil {
						passed++
						if whole := m.Columns.Payload == "doc" && m.Value == format.Raw; whole && string(b.Records[0].Value) != doc {
							t.Errorf("%s of %s is changed", typ, kind)
						}
						continue
					}
					e, ok := errors.AsType[*record.RowError](err)
					if !ok || e.Column != "doc" && !strings.HasPrefix(e.Column, "doc#") {
						t.Errorf("%s of %s: %.300v", typ, kind, err)
					} else if text := err.Error(); !strings.Contains(text, "doc") || len(text) > 2000 {
						t.Errorf("%s of %s: %d bytes: %.300s", typ, kind, len(text), text)
					}
				}
			}
			if passed == 0 {
				t.Error("nothing passes")
			}
		})
	}
}
