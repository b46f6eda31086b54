package encode

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/avro"
)

func compiled(t testing.TB, text string, o Options, references ...Reference) *Encoder {
	t.Helper()
	o.Kind = Avro
	e, err := Compile(Schema{Subject: "s-value", Version: 3, ID: 17, Kind: Avro, Text: text, References: references}, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// field is a record with one field f.
func field(typ string) string {
	return `{"type": "record", "name": "R", "namespace": "n", "fields": [{"name": "f", "type": ` + typ + `}]}`
}

const fixed = `{"type": "fixed", "name": "F", "size": 3}`

// The bytes are the specification's.
func TestAvro_EncodesEachType(t *testing.T) {
	for _, c := range []struct{ typ, json, want string }{
		{`"null"`, `null`, ""},
		{`"boolean"`, `true`, "01"},
		{`"boolean"`, `false`, "00"},
		{`"int"`, `-64`, "7f"},
		{`"int"`, `64`, "8001"},
		{`"int"`, `2147483647`, "feffffff0f"},
		{`"int"`, `7.0`, "0e"},
		{`"int"`, `7e2`, "f80a"},
		{`"int"`, `-0`, "00"},
		{`"long"`, `-9223372036854775808`, "ffffffffffffffffff01"},
		{`"long"`, `9223372036854775807`, "feffffffffffffffff01"},
		{`"float"`, `1.5`, "0000c03f"},
		{`"double"`, `1.5`, "000000000000f83f"},
		{`"string"`, `"foo"`, "06666f6f"},
		{`"string"`, `"\u00e9\n\ud83d\ude00"`, "0ec3a90af09f9880"},
		{`"string"`, `""`, "00"},
		{`"bytes"`, `"AP8="`, "0400ff"},
		{fixed, `"AP8B"`, "00ff01"},
		{`{"type": "enum", "name": "E", "symbols": ["A", "B"]}`, `"B"`, "02"},
		{`{"type": "array", "items": "int"}`, `[1, 2]`, "04020400"},
		{`{"type": "array", "items": "int"}`, `[]`, "00"},
		{`{"type": "map", "values": "int"}`, `{"a": 1, "b": 2}`, "040261020262" + "0400"},
		{`{"type": "map", "values": "int"}`, `{}`, "00"},
		{`["null", "string"]`, `null`, "00"},
		{`["null", "string"]`, `"a"`, "020261"},
		{`["null", "long", "int"]`, `{"int": 1}`, "0402"},
		{`["null", {"type": "map", "values": "int"}]`, `{"a": 1}`, "020202610200"},
		{`{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}`, `12.5`, "0404e2"},
		{`{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}`, `"-1.28"`, "0280"},
		{`{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}`, `0`, "0200"},
		{`{"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}`, `-0.01`, "ffffffff"},
		{`{"type": "string", "logicalType": "uuid"}`, `"8e0a5a5e-3c3f-4c5e-9f43-0242ac120002"`, "4838653061356135652d336333662d346335652d396634332d303234326163313230303032"},
		{`{"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}`, `"8e0a5a5e-3c3f-4c5e-9f43-0242ac120002"`, "8e0a5a5e3c3f4c5e9f430242ac120002"},
		{`{"type": "int", "logicalType": "date"}`, `"1970-01-02"`, "02"},
		{`{"type": "int", "logicalType": "date"}`, `"1969-12-31"`, "01"},
		{`{"type": "int", "logicalType": "time-millis"}`, `"00:00:00.0019"`, "02"},
		{`{"type": "long", "logicalType": "time-micros"}`, `"00:00:00.001"`, "d00f"},
		{`{"type": "long", "logicalType": "timestamp-millis"}`, `"1970-01-01T01:00:00.001999+01:00"`, "02"},
		{`{"type": "long", "logicalType": "timestamp-millis"}`, `"1969-12-31T23:59:59.9999Z"`, "01"},
		{`{"type": "long", "logicalType": "timestamp-micros"}`, `"1970-01-01 00:00:00.000002Z"`, "04"},
		{`{"type": "long", "logicalType": "timestamp-nanos"}`, `"1970-01-01T00:00:00.000000003Z"`, "06"},
		{`{"type": "long", "logicalType": "timestamp-micros"}`, `5`, "0a"},
		{`{"type": "long", "logicalType": "local-timestamp-millis"}`, `"1970-01-01T00:00:01"`, "d00f"},
		{`{"type": "int", "logicalType": "unheard-of"}`, `1`, "02"},
	} {
		e := compiled(t, field(c.typ), Options{Bytes: Base64})
		got, err := e.Append(nil, []byte(`{"f": `+c.json+`}`))
		if want := "0000000011" + c.want; err != nil || hex.EncodeToString(got) != want {
			t.Errorf("%s as %s: %x, %v, want %s", c.json, c.typ, got, err, want)
		}
	}
}

func TestAvro_ReadsBytesAsTheConfigurationSays(t *testing.T) {
	e := compiled(t, field(`"bytes"`), Options{Bytes: Latin1})
	if got, err := e.Append(nil, []byte(`{"f": "\u00ffA"}`)); err != nil || hex.EncodeToString(got[5:]) != "04ff41" {
		t.Errorf("%x, %v", got, err)
	}
}

// A mismatch has path and types, never the payload.
func TestAvro_RefusesWhatDoesNotFit(t *testing.T) {
	const secret = "hunter2"
	for _, c := range []struct{ typ, json, want string }{
		{`"int"`, `"hunter2"`, "$.f: the schema wants int, the payload has a string"},
		{`"int"`, `1.5`, "$.f: the schema wants int, the payload has a number with a fraction"},
		{`"int"`, `2147483648`, "$.f: the schema wants int, the payload has a number out of range"},
		{`"int"`, `1e999999999999`, "$.f: the schema wants int, the payload has a number with a fraction, or out of range"},
		{`"long"`, `9223372036854775808`, "$.f: the schema wants long"},
		{`"float"`, `1e60`, "$.f: the schema wants float, the payload has a number out of range"},
		{`"double"`, `1e400`, "$.f: the schema wants double, the payload has a number out of range"},
		{`"string"`, `1`, "$.f: the schema wants string, the payload has a number"},
		{`"string"`, `null`, "$.f: the schema wants string, the payload has null"},
		{`"string"`, `"\ud800hunter2"`, "the payload has half of a surrogate pair (byte 7)"},
		{`"boolean"`, `"hunter2"`, "$.f: the schema wants boolean, the payload has a string"},
		{`"bytes"`, `"hunter2"`, "$.f: the schema wants bytes, the payload has a string that is not base64"},
		{fixed, `"AP8="`, "$.f: the schema wants n.F of 3 bytes, the payload has 2"},
		{`{"type": "enum", "name": "E", "symbols": ["A", "B"]}`, `"hunter2"`, "$.f: the schema wants a symbol of n.E, the payload has an unknown symbol"},
		{`{"type": "array", "items": {"type": "array", "items": "int"}}`, `[[1], [2, "hunter2"]]`, "$.f[1][1]: the schema wants int, the payload has a string"},
		{`{"type": "map", "values": "int"}`, `{"hunter2": "x"}`, "$.f[*]: the schema wants int, the payload has a string"},
		{`{"type": "map", "values": "int"}`, `{"a": 1, "\u0061": 2}`, "$.f[*]: is there twice"},
		{`["null", "int"]`, `"hunter2"`, "$.f: the schema wants one of null, int, the payload has a string"},
		{`["null", "long", "int"]`, `1`, `$.f: the schema wants one of null, long, int, and more than one takes a number; write which, as {"name": value}`},
		{`["null", "long", "int"]`, `{"hunter2": 1}`, "$.f: the schema wants one of null, long, int, and the object's one member names none of them"},
		{`{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}`, `1.234`, "$.f: the schema wants decimal(4,2), the payload has more digits behind the point"},
		{`{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}`, `123.4`, "$.f: the schema wants decimal(4,2), the payload has more digits"},
		{`{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}`, `"hunter2"`, "$.f: the schema wants decimal(4,2), the payload has a string that is no number"},
		{`{"type": "fixed", "name": "D", "size": 1, "logicalType": "decimal", "precision": 2, "scale": 0}`, `"99.0e1"`, "the payload has more digits"},
		{`{"type": "string", "logicalType": "uuid"}`, `"hunter2"`, "$.f: the schema wants a UUID, the payload has a string in another format"},
		{`{"type": "long", "logicalType": "timestamp-millis"}`, `"hunter2"`, "$.f: the schema wants a time such as 2026-01-31T12:00:00Z, or a number, the payload has a string in another format"},
		{`{"type": "long", "logicalType": "timestamp-nanos"}`, `"2300-01-01T00:00:00Z"`, "out of range"},
		{`{"type": "long", "logicalType": "local-timestamp-millis"}`, `"2026-01-01T00:00:00Z"`, "a time without zone"},
	} {
		e := compiled(t, field(c.typ), Options{Bytes: Base64})
		kept := []byte("kept")
		got, err := e.Append(kept, []byte(`{"f": `+c.json+`}`))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasSuffix(err.Error(), "(subject s-value, version 3, id 17)") {
			t.Errorf("%s as %s: %v, want %s", c.json, c.typ, err, c.want)
			continue
		}
		if strings.Contains(err.Error(), secret) || !bytes.Equal(got, kept) {
			t.Errorf("%s as %s: %v gives %q", c.json, c.typ, err, got)
		}
	}
}

func TestAvro_RefusesPayloadsOfAnotherShape(t *testing.T) {
	e := compiled(t, `{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 7}]}`, Options{})
	for json, want := range map[string]string{
		`{}`:                      "$.a: is missing, and the schema has no default for it",
		`{"a": 1, "a": 2}`:        "$.a: is there twice",
		`{"a": 1, "\u0061": 2}`:   "$.a: is there twice",
		`{"a": 1, "c": 2}`:        "$.c: is not in the schema",
		`{"a": 1, "two words":1}`: `$["two words"]: is not in the schema`,
		`[]`:                      "$: the schema wants R, the payload has an array",
		`null`:                    "$: the schema wants R, the payload has null",
		``:                        "the payload is not JSON (byte 0)",
		`{"a": NaN}`:              "the payload is not JSON (byte 6)",
		`{"a": 01}`:               "the payload is not JSON",
		`{"a": 1}}`:               "the payload has something behind its end",
		`{"a": 1,}`:               "the payload is not JSON",
		"{\"a\": \"\xff\"}":       "the payload is not UTF-8 text",
		strings.Repeat("[", 300):  "the payload lies deeper than 256 levels (byte 256)",
	} {
		if _, err := e.Append(nil, []byte(json)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", json, err, want)
		}
	}
	if got, err := e.Append(nil, []byte(`{"a": 1}`)); err != nil || hex.EncodeToString(got[5:]) != "020e" {
		t.Errorf("the default is missing: %x, %v", got, err)
	}
	e = compiled(t, `{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}`, Options{Drop: true})
	if got, err := e.Append(nil, []byte(`{"c": [{"d": 1}], "a": 1}`)); err != nil || hex.EncodeToString(got[5:]) != "02" {
		t.Errorf("an unknown member is not dropped: %x, %v", got, err)
	}
}

func TestAvro_RefusesSchemasThatItCannotDoRight(t *testing.T) {
	for text, want := range map[string]string{
		`{"type": "record"}`: "",
		`not json`:           "",
		field(`"bytes"`):     "set schema.bytes",
		field(`["null", {"type": "map", "values": "int"}, "int", "long"]`):      "is ambiguous",
		field(`{"type": "bytes", "logicalType": "decimal", "precision": 5000}`): "at most 1000 digits",
		`{"type": "string", "doc": "` + strings.Repeat("x", MaxSchema) + `"}`:   "bytes with its references",
	} {
		_, err := Compile(Schema{Subject: "s", Kind: Avro, Text: text}, Options{Kind: Avro})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
	if _, err := Compile(Schema{Kind: JSONSchema, Text: "{}"}, Options{Kind: Avro}); err == nil || !strings.Contains(err.Error(), "the schema is JSON, and the table is encoded as AVRO") {
		t.Errorf("another language: %v", err)
	}
}

const order = `{"type": "record", "name": "Order", "namespace": "shop", "fields": [
	{"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
	{"name": "customer", "type": "Customer"},
	{"name": "placed", "type": {"type": "long", "logicalType": "timestamp-micros"}},
	{"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
	{"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
		{"name": "sku", "type": "string"}, {"name": "qty", "type": "int"}, {"name": "of", "type": ["null", "Line"], "default": null}]}}},
	{"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["PLACED", "PAID"]}, "default": "PAID"},
	{"name": "note", "type": ["null", "string"], "default": null},
	{"name": "tags", "type": {"type": "map", "values": "string"}, "default": {"b": "2", "a": "1"}},
	{"name": "first", "type": "Line", "default": {"sku": "none", "qty": 0}}]}`

var customer = Reference{Name: "shop.Customer", Text: `{"type": "record", "name": "Customer", "namespace": "shop", "fields": [{"name": "name", "type": "string"}, {"name": "rating", "type": "double", "default": 0.5}]}`}

const placed = `{"id": "8e0a5a5e-3c3f-4c5e-9f43-0242ac120002", "customer": {"name": "Ada"}, "placed": "2026-11-25T20:05:09.123456+00:00", "total": 129.90,
	"lines": [{"sku": "A-1", "qty": 2}, {"qty": 1, "sku": "B-2", "of": {"sku": "C", "qty": 9}}], "note": "leave at the door"}`

// What is written reads back by the library, with references, recursion and defaults.
func TestAvro_ReadsBackByTheLibrary(t *testing.T) {
	e := compiled(t, order, Options{}, customer)
	value, err := e.Append(nil, []byte(placed))
	if err != nil {
		t.Fatal(err)
	}
	back, err := e.Decode(value)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name":"Ada"`, `"rating":0.5`, `"note":"leave at the door"`, `"state":"PAID"`, `"sku":"none"`, `"a":"1"`, `"sku":"C"`} {
		if !bytes.Contains(back, []byte(want)) {
			t.Errorf("%s lacks %s", back, want)
		}
	}
	if _, err := e.Decode(append(value, 1)); err == nil {
		t.Error("bytes behind the record are not seen")
	}
	if _, err := e.Decode([]byte("\x00\x00\x00\x00\x12")); err == nil {
		t.Error("another schema's value is decoded")
	}
}

func TestAvro_AllocatesNothingARow(t *testing.T) {
	e := compiled(t, strings.NewReplacer(`{"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}`, `"double"`).Replace(order), Options{}, customer)
	dst := make([]byte, 0, 1<<10)
	payload := []byte(placed)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := e.Append(dst, payload); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%.0f allocations a row", n)
	}
}

func BenchmarkAvro(b *testing.B) {
	e := compiled(b, order, Options{}, customer)
	// The library takes no time as RFC 3339.
	payload, dst := []byte(strings.Replace(placed, `"2026-11-25T20:05:09.123456+00:00"`, "1764101109123456", 1)), make([]byte, 0, 1<<10)
	b.Run("walk", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := e.Append(dst, payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	var cache avro.SchemaCache
	_, _ = cache.Parse(customer.Text)
	library, err := cache.Parse(order)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v any
			if err := library.DecodeJSON(payload, &v); err != nil {
				b.Fatal(err)
			}
			if _, err := library.AppendEncode(dst, v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("compile", func(b *testing.B) {
		for b.Loop() {
			compiled(b, order, Options{}, customer)
		}
	})
}

// FuzzAvro holds the walk against the library: what the walk takes, the library reads back, and
// writes the same bytes again; and no message holds the payload.
func FuzzAvro(f *testing.F) {
	schemas := []string{order, field(`["null", "string", "long", {"type": "array", "items": "double"}]`), field(`{"type": "map", "values": ["null", "boolean", "float"]}`), field(`{"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}`)}
	f.Add(0, []byte(placed))
	for i, json := range []string{`{"f": "a"}`, `{"f": [1.5, 1e300]}`, `{"f": {"a": true, "b": null}}`, `{"f": -12.345}`} {
		f.Add(i%len(schemas), []byte(json))
		f.Add(3, []byte(json))
	}
	f.Fuzz(func(t *testing.T, which int, payload []byte) {
		text := schemas[uint(which)%uint(len(schemas))]
		var references []Reference
		var cache avro.SchemaCache
		if text == order {
			references = append(references, customer)
			_, _ = cache.Parse(customer.Text)
		}
		e := compiled(t, text, Options{Bytes: Base64}, references...)
		value, err := e.Append(nil, payload)
		if err != nil {
			return
		}
		back, err := e.Decode(value)
		if err != nil {
			t.Fatalf("%q gives %x, which does not read back: %v", payload, value, err)
		}
		if twice, err := e.Append(nil, back); err != nil || !bytes.Equal(twice, value) {
			t.Fatalf("%q gives %x, which reads back as %s, which gives %x, %v", payload, value, back, twice, err)
		}
		library, err := cache.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		rest, err := library.Decode(value[5:], &v)
		if err != nil || len(rest) > 0 {
			t.Fatalf("%q gives %x, which the library reads as %v, %v, with %d bytes left", payload, value, v, err, len(rest))
		}
		if bytes.Contains(value, []byte("\x02\x61")) || strings.Contains(text, `"map"`) {
			return // the order of a map is the payload's
		}
		again, err := library.AppendEncode(nil, v)
		if err != nil || !bytes.Equal(again, value[5:]) {
			t.Fatalf("%q gives %x, and the library %x, %v", payload, value[5:], again, err)
		}
	})
}

// FuzzAvroSchema: a schema of any text is refused or made ready, and then any payload is refused or
// read back.
func FuzzAvroSchema(f *testing.F) {
	for _, text := range []string{order, field(`"int"`), field(`["null", "R"]`), `"string"`, `{"type": "enum", "name": "E", "symbols": ["A"]}`, field(`{"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 3}`)} {
		f.Add(text, []byte(placed))
		f.Add(text, []byte(`{"f": 1}`))
	}
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		e, err := Compile(Schema{Kind: Avro, Text: text, References: []Reference{customer}}, Options{Kind: Avro, Bytes: Latin1})
		if err != nil {
			return
		}
		value, err := e.Append(nil, payload)
		if err != nil {
			return
		}
		if _, err := e.Decode(value); err != nil {
			t.Fatalf("by %s %q gives %x, which does not read back: %v", text, payload, value, err)
		}
	})
}

// What the schemas of other producers have: the library takes it, and so does the walk.
func TestAvro_TakesTheSchemasThatTheLibraryTakes(t *testing.T) {
	for _, text := range []string{
		`{"type": "record", "name": "a.b.R", "doc": "d", "aliases": ["Q"], "fields": [{"name": "f", "type": {"type": "int"}, "order": "ignore", "doc": "x"}]}`,
		`{"type": "record", "name": "R", "namespace": "n", "fields": [{"name": "f", "type": {"type": "record", "name": "S", "namespace": "", "fields": []}, "default": {}}, {"name": "g", "type": ["null", "S", "R"]}]}`,
		`{"type": "error", "name": "R", "fields": [{"name": "f", "type": ["int", "null"], "default": 3}, {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "double"}}, "default": {"a": [1, 2.5]}}]}`,
		`{"type": "record", "name": "R", "fields": [{"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}, "default": "B"}, {"name": "x", "type": {"type": "fixed", "name": "F", "size": 2}, "default": "\u0000\u00ff"}, {"name": "u", "type": "E", "default": "A"}]}`,
		`["null", "string"]`, `{"type": "long", "logicalType": "timestamp-millis"}`, `"boolean"`,
	} {
		if _, err := avro.Parse(text); err != nil {
			t.Errorf("the library refuses %s: %v", text, err)
		}
		if _, err := Compile(Schema{Kind: Avro, Text: text}, Options{Kind: Avro, Bytes: Latin1}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		`{"type": "record", "name": "R", "fields": [{"name": "f", "type": "int", "default": "x"}]}`, `{"type": "record", "name": "1R", "fields": []}`,
		`{"type": "record", "name": "R", "fields": [{"name": "f", "type": "int"}, {"name": "f", "type": "int"}]}`, `["int", "int"]`, `[["int"]]`, `"Unknown"`, `{"type": "enum", "name": "E", "symbols": ["A", "A"]}`, `{"type": "array"}`, `7`,
	} {
		if _, err := avro.Parse(text); err == nil {
			t.Errorf("the library takes %s", text)
		}
		if _, err := Compile(Schema{Kind: Avro, Text: text}, Options{Kind: Avro, Bytes: Latin1}); err == nil {
			t.Errorf("taken: %s", text)
		}
	}
}

// Large and deep input is taken or refused, in a time that grows with its length: the test would not
// end otherwise.
func TestAvro_StandsLargeAndDeepInput(t *testing.T) {
	var fields, members []string
	for i := range 10_000 {
		fields = append(fields, fmt.Sprintf(`{"name": "f%d", "type": ["null", "int"], "default": null}`, i))
		members = append(members, fmt.Sprintf(`"f%d": %d`, i, i))
	}
	slices.Reverse(members) // in the wrong order
	e := compiled(t, `{"type": "record", "name": "W", "fields": [{"name": "all", "type": {"type": "array", "items": {"type": "record", "name": "R", "fields": [`+strings.Join(fields, ", ")+`]}}}]}`, Options{})
	object := `{` + strings.Join(members, ", ") + `}`
	large := `{"all": [` + object + strings.Repeat(`, `+object, 49) + `]}` // 8 MB
	if got, err := e.Append(nil, []byte(large)); err != nil || len(got) < 1<<20 {
		t.Errorf("%d bytes of %d, %v", len(got), len(large), err)
	}
	twice := `{"all": [` + object[:len(object)-1] + `, "f0": 1}]}`
	if _, err := e.Append(nil, []byte(twice)); err == nil || !strings.Contains(err.Error(), "$.all[0].f0: is there twice") {
		t.Errorf("a member that is there twice: %v", err)
	}

	e = compiled(t, `{"type": "array", "items": {"type": "record", "name": "D", "fields": [{"name": "d", "type": "string", "default": "`+strings.Repeat("x", 100_000)+`"}]}}`, Options{})
	if _, err := e.Append(nil, []byte(`[`+strings.Repeat(`{},`, 1_000_000)+`{}]`)); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a million records of a long default: %v", err)
	}

	e = compiled(t, `{"type": "record", "name": "N", "fields": [{"name": "of", "type": ["null", "N"], "default": null}, {"name": "m", "type": {"type": "map", "values": "double"}, "default": {}}]}`, Options{})
	deep := strings.Repeat(`{"of": `, 255) + `{}` + strings.Repeat(`}`, 255)
	got, err := e.Append(nil, []byte(deep))
	if err != nil {
		t.Fatal(err)
	}
	if back, err := e.Decode(got); err != nil || bytes.Count(back, []byte(`"of"`)) != 256 {
		t.Errorf("%d bytes, %v", len(back), err)
	}
	for name, payload := range map[string]string{
		"a bomb of objects": strings.Repeat(`{"of": `, 3_000_000), "a bomb of arrays": strings.Repeat(`[`, 20<<20),
		"digits": `{"m": {"a": ` + strings.Repeat("9", 20<<20) + `}}`, "an exponent": `{"m": {"a": 1e` + strings.Repeat("9", 20<<20) + `}}`,
		"an open string": `{"m": {"` + strings.Repeat(`\u0061`, 4<<20), "the same name": `{"m": {"a": 1` + strings.Repeat(`, "a": 1`, 500_000) + `}}`,
	} {
		if out, err := e.Append(nil, []byte(payload)); err == nil || len(out) > 0 || len(err.Error()) > 300 {
			t.Errorf("%s: %d bytes, %.300v", name, len(out), err)
		}
	}
}

// Defaults within defaults may double at each level: such a schema is refused, and not made ready in
// memory that the machine does not have.
func TestAvro_RefusesASchemaWhoseDefaultsGrow(t *testing.T) {
	typ := `{"type": "record", "name": "R0", "fields": [{"name": "n", "type": "int", "default": 7}]}`
	for level := range 60 {
		typ = fmt.Sprintf(`{"type": "record", "name": "R%d", "fields": [{"name": "a", "type": %s, "default": {}}, {"name": "b", "type": "R%d", "default": {}}]}`, level+1, typ, level)
	}
	if _, err := Compile(Schema{Subject: "s", Kind: Avro, Text: typ}, Options{Kind: Avro}); err == nil || !strings.Contains(err.Error(), "default") {
		t.Errorf("%v", err)
	}
	// Of two branches that look alike each is tried below each.
	typ = `["null", {"type": "record", "name": "A0", "fields": []}, {"type": "record", "name": "B0", "fields": [{"name": "f", "type": "int"}]}]`
	value := `"neither"`
	for level := range 60 {
		typ = fmt.Sprintf(`["null", {"type": "record", "name": "A%[1]d", "fields": [{"name": "f", "type": %[2]s}]}, {"type": "record", "name": "B%[1]d", "fields": [{"name": "f", "type": ["null", "A%[3]d", "B%[3]d"]}]}]`, level+1, typ, level)
		value = `{"f": ` + value + `}`
	}
	typ = `{"type": "record", "name": "R", "fields": [{"name": "d", "type": ` + typ + `, "default": ` + value + `}]}`
	if _, err := Compile(Schema{Subject: "s", Kind: Avro, Text: typ}, Options{Kind: Avro}); err == nil || !strings.Contains(err.Error(), "default of field d: takes too many tries") {
		t.Errorf("%v", err)
	}
}
