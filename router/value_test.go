package router

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/jsontext"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/record/recordtest"
)

func TestValue_Formats(t *testing.T) {
	fields := []Field{{"type", "event_type"}, {"n", "shard"}}
	for _, c := range []struct {
		name, typ, payload string
		m                  Mapping
		want               string
	}{
		{"raw keeps bytes", "json", "{\"b\": 1,\n \"a\":1.50}", Mapping{}, "bytes 7b2262223a20312c0a202261223a312e35307d"},
		{"raw keeps an empty text", "text", "", Mapping{}, "empty"},
		{"json null is no SQL NULL", "jsonb", "null", Mapping{}, "null"},
		{"json_string escapes as JsonConverter does", "text", "a\"\\/<>&\b\f\n\r\t\x01\x1f\x7fé\u2028😀", Mapping{Value: format.JSONString}, `"a\"\\/<>&\b\f\n\r\t\u0001\u001F` + "\x7fé\u2028" + `\uD83D\uDE00"`},
		{"envelope", "jsonb", `{"a": 1}`, Mapping{Value: format.Envelope, ValueFields: fields}, `{"payload":{"a": 1},"type":"created","n":3}`},
		{"envelope without fields", "jsonb", `[1]`, Mapping{Value: format.Envelope}, `{"payload":[1]}`},
		{"envelope of a JSON scalar", "jsonb", `1.50`, Mapping{Value: format.Envelope}, `{"payload":1.50}`},
		{"envelope of JSON in text", "text", ` {"a": 1}`, Mapping{Value: format.Envelope}, `{"payload": {"a": 1}}`},
		{"envelope of JSON in bytea", "bytea", `\x7b7d`, Mapping{Value: format.Envelope}, `{"payload":{}}`},
		{"envelope of text", "text", `say "x"`, Mapping{Value: format.Envelope}, `{"payload":"say \"x\""}`},
		{"envelope of text that looks like a number", "text", `15`, Mapping{Value: format.Envelope}, `{"payload":"15"}`},
		{"envelope of broken JSON", "text", `{"a":`, Mapping{Value: format.Envelope}, `{"payload":"{\"a\":"}`},
		{"envelope at a pointer", "json", `{"a":{"b":"c"}}`, Mapping{Value: format.Envelope, Columns: Columns{Payload: "payload#/a/b"}}, `{"payload":"c"}`},
		{"envelope of NULL", "json", null, Mapping{Value: format.Envelope}, "null"},
		{"merged", "jsonb", `{"a": 1, "b": {"c": [2]}}`, Mapping{Value: format.Merged, ValueFields: fields}, `{"type":"created","n":3,"a": 1, "b": {"c": [2]}}`},
		{"merged, clash", "json", `{"n":"own","x":1}`, Mapping{Value: format.Merged, ValueFields: fields}, `{"type":"created","n":"own","x":1}`},
		{"merged, clash with an escaped name", "json", `{"\u006e":"own"}`, Mapping{Value: format.Merged, ValueFields: fields}, `{"type":"created","\u006e":"own"}`},
		{"merged, no clash in depth", "json", `{"x":{"n":1}}`, Mapping{Value: format.Merged, ValueFields: fields}, `{"type":"created","n":3,"x":{"n":1}}`},
		{"merged, all clash", "json", ` { "type" : 1 , "n" : 2 } `, Mapping{Value: format.Merged, ValueFields: fields}, `{ "type" : 1 , "n" : 2 }`},
		{"merged, empty object", "json", ` { } `, Mapping{Value: format.Merged, ValueFields: fields}, `{"type":"created","n":3 }`},
		{"merged, JSON in text", "text", `{"a":"}"}`, Mapping{Value: format.Merged, ValueFields: fields}, `{"type":"created","n":3,"a":"}"}`},
		{"merged, NULL", "json", null, Mapping{Value: format.Merged, ValueFields: fields}, "null"},
		{"tombstone for empty", "text", "", Mapping{TombstoneOnEmpty: true}, "null"},
		{"tombstone for blank", "text", " \t\n", Mapping{TombstoneOnEmpty: true, Value: format.JSONString}, "null"},
		{"no tombstone for an object", "json", "{}", Mapping{TombstoneOnEmpty: true}, "{}"},
		{"no tombstone for empty bytea", "bytea", `\x`, Mapping{}, "empty"},
		{"no tombstone unless asked", "text", " ", Mapping{}, " "},
	} {
		t.Run(c.name, func(t *testing.T) {
			rel := table(t, "id uuid", "aggregate_type text", "event_type text", "shard int4", "payload "+c.typ)
			rec, err := routeOne(t, c.m, textRow(rel, testID, "order", "created", "3", c.payload))
			if err != nil {
				t.Fatal(err)
			}
			if got := recordtest.Bytes(rec.Value); got != c.want {
				t.Errorf("got\n%s, want\n%s", got, c.want)
			}
			if c.payload == null && rec.Value != nil {
				t.Error("NULL gives a value")
			}
		})
	}
}

func TestValue_FieldsByType(t *testing.T) {
	for _, c := range []struct{ typ, text, want string }{
		{"bool", "t", "true"},
		{"bool", "f", "false"},
		{"int2", "-1", "-1"},
		{"int8", "9007199254740993", "9007199254740993"},
		{"numeric", "12.50", "12.50"},
		{"numeric", "NaN", `"NaN"`},
		{"float8", "1e+20", "1e+20"},
		{"float8", "Infinity", `"Infinity"`},
		{"text", `a"b`, `"a\"b"`},
		{"jsonb", `{"a": 1}`, `{"a": 1}`},
		{"uuid", testID, `"` + testID + `"`},
		{"timestamptz", "2024-01-02 03:04:05+00", `"2024-01-02 03:04:05+00"`},
		{"bytea", `\x00ff`, `"\\x00ff"`},
		{"hstore", `"a"=>"1"`, `"\"a\"=>\"1\""`},
		{"text", null, "null"},
		{"mood", "sad", `"sad"`},
	} {
		rel := table(t, "id uuid", "aggregate_type text", "payload jsonb", "f "+c.typ)
		m := Mapping{Value: format.Merged, ValueFields: []Field{{"f", "f"}}}
		rec, err := routeOne(t, m, textRow(rel, testID, "order", `{}`, c.text))
		if want := `{"f":` + c.want + `}`; err != nil || string(rec.Value) != want {
			t.Errorf("%s %s: %s, %v; want %s", c.typ, c.text, rec.Value, err, want)
		}
	}
}

// FuzzValue checks both JSON formats on any payload: the output is JSON, and
// parsing it gives the payload and the fields.
func FuzzValue(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"type":"own"}`, `{"\u0074ype":1,"n":{"type":2}}`, `{}`, ` { } `, `[1]`, `"x"`, `{"a":"}"`, "\xff", `{"a":"\ud800"}`} {
		f.Add([]byte(s))
	}
	rel := table(f, "id uuid", "aggregate_type text", "event_type text", "payload text")
	fields := []Field{{"type", "event_type"}, {"id", "id"}}
	merged := mustNew(f, Mapping{Value: format.Merged, ValueFields: fields})
	envelope := mustNew(f, Mapping{Value: format.Envelope, ValueFields: fields})
	f.Fuzz(func(t *testing.T, payload []byte) {
		row := textRow(rel, testID, "order", "created", "")
		row.Values[3] = wal.Value{Kind: wal.Text, Data: payload}
		var b record.Buffer
		checkMerged(t, merged.Route(&b, row), &b, payload)
		b.Reset()
		if err := envelope.Route(&b, row); err != nil {
			if strings.ToValidUTF8(string(payload), "") == string(payload) {
				t.Fatalf("envelope of %q: %v", payload, err)
			}
			return
		}
		var got struct {
			Payload  json.RawMessage
			Type, ID string
		}
		if err := json.Unmarshal(b.Records[0].Value, &got); err != nil || got.Type != "created" || got.ID != testID {
			t.Fatalf("envelope of %q is %q: %v", payload, b.Records[0].Value, err)
		}
		var text string
		if string(got.Payload) == string(trimJSON(payload)) {
			return
		}
		if err := json.Unmarshal(got.Payload, &text); err != nil || text != string(payload) {
			t.Fatalf("envelope of %q holds %q", payload, got.Payload)
		}
	})
}

func trimJSON(b []byte) []byte {
	return []byte(strings.Trim(string(b), " \t\r\n"))
}

func checkMerged(t *testing.T, err error, b *record.Buffer, payload []byte) {
	t.Helper()
	var own map[string]json.RawMessage
	object := json.Unmarshal(payload, &own) == nil && own != nil
	if object != (err == nil) {
		t.Fatalf("merged of %q: %v", payload, err)
	}
	if !object {
		return
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(b.Records[0].Value, &got); err != nil {
		t.Fatalf("merged of %q is %q: %v", payload, b.Records[0].Value, err)
	}
	for name, value := range own {
		if string(got[name]) != string(value) {
			t.Fatalf("merged of %q is %q: member %q changed", payload, b.Records[0].Value, name)
		}
	}
	for name, want := range map[string]string{"type": `"created"`, "id": `"` + testID + `"`} {
		if _, clash := own[name]; !clash && string(got[name]) != want {
			t.Fatalf("merged of %q is %q: no %s", payload, b.Records[0].Value, name)
		}
	}
}

func TestPointer(t *testing.T) {
	const doc = ` {"a":{"b":[10,{"c":null,"d":"x"}]},"a/b":1,"m~n":2,"":3,"\u0065":4,"dup":1,"dup":2} `
	for _, c := range []struct{ pointer, want string }{
		{"/a/b/0", "10"}, {"/a/b/1/d", `"x"`}, {"/a/b/1/c", ""}, {"/a/b/2", ""}, {"/a/b/00", ""}, {"/a/b/-", ""}, {"/a/b/x", ""},
		{"/a~1b", "1"}, {"/m~0n", "2"}, {"/", "3"}, {"/e", "4"}, {"/dup", "2"}, {"/a/b/0/x", ""}, {"/none/x", ""},
	} {
		p, err := jsontext.ParsePointer(c.pointer)
		if err != nil {
			t.Fatal(err)
		}
		got, err := jsontext.Lookup([]byte(doc), p)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v; want %q", c.pointer, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "a", "/~", "/~2", "/a~01~"} {
		if _, err := jsontext.ParsePointer(bad); err == nil {
			t.Errorf("pointer %q passes", bad)
		}
	}
}

func FuzzPointer(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"c"}]}`), "/a/1/b")
	f.Add([]byte(`{"a":[`), "/a/1")
	f.Add([]byte(`"`), "/~1")
	f.Fuzz(func(t *testing.T, doc []byte, pointer string) {
		p, err := jsontext.ParsePointer(pointer)
		if err != nil {
			return
		}
		got, err := jsontext.Lookup(doc, p)
		if err == nil && got != nil && json.Valid(doc) && !json.Valid(got) {
			t.Fatalf("%q in %q gives %q", pointer, doc, got)
		}
	})
}
