package protobuf

import (
	"encoding/hex"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

// each type with the payloads that it takes. The library says the same of each.
var taken = map[string][]string{
	"fDouble": {`0`, `-0.0`, `1.5`, `"1.5"`, `"NaN"`, `"Infinity"`, `"-Infinity"`, `1e308`}, "rDouble": {`[]`, `[0, 1.5]`},
	"fFloat": {`1.5`, `3.4e38`, `"NaN"`}, "rFloat": {`[1, 2]`}, "mfloat": {`{"a": 0, "b": 1.5}`},
	"fInt64": {`0`, `-9223372036854775808`, `"9223372036854775807"`, `1e3`, `1.0`}, "rInt64": {`[1, "2"]`}, "mint64": {`{"-1": 1, "10": 2, "9": "3"}`},
	"fUint64": {`18446744073709551615`, `"18446744073709551615"`, `1e19`}, "muint64": {`{"18446744073709551615": 1, "2": 2}`},
	"fInt32": {`-1`, `2147483647`, `-0`}, "rInt32": {`[-1, 0, 1]`}, "mint32": {`{"5": 0, "-5": 1}`},
	"fFixed64": {`18446744073709551615`}, "rFixed64": {`[1]`}, "mfixed64": {`{"1": 1}`},
	"fFixed32": {`4294967295`}, "rFixed32": {`[1, 2]`}, "fBool": {`true`, `false`}, "rBool": {`[true, false]`}, "mbool": {`{"true": false, "false": true}`},
	"fString": {`""`, `"a"`, `"\u00e9\n\ud83d\ude00"`}, "rString": {`["", "a"]`}, "mstring": {`{"b": "1", "a": "2", "": ""}`},
	"fBytes": {`"AP8="`, `"AP8"`, `"_-8="`, `""`}, "rBytes": {`["", "AA=="]`}, "mbytes": {`{"a": "AA"}`},
	"fUint32": {`4294967295`}, "rUint32": {`[1]`}, "fEnum": {`"ONE"`, `1`, `-1`, `99`, `"ZERO"`}, "rEnum": {`["ONE", 0, -1]`}, "menum": {`{"-1": "ONE", "1": 0}`},
	"fSfixed32": {`-1`}, "rSfixed32": {`[-1]`}, "fSfixed64": {`-1`}, "rSfixed64": {`[-1, "1"]`}, "fSint32": {`-2147483648`, `1`}, "rSint32": {`[-1]`}, "msint32": {`{"-3": -3, "2": 2}`},
	"fSint64": {`-9223372036854775808`}, "rSint64": {`[-1]`}, "msint64": {`{"-1": -1}`},
	"fMessage": {`{}`, `{"fInt32": 1, "fMessage": {"fString": "a"}}`, `null`}, "rMessage": {`[{}, {"f_int32": 1}]`}, "mmessage": {`{"a": {}, "b": {"fBool": true}}`},
	"fTimestamp": {`"1970-01-01T00:00:00Z"`, `"2026-11-25T20:05:09.123456789+01:00"`, `"0001-01-01T00:00:00Z"`, `"9999-12-31T23:59:59.999Z"`, `"1969-12-31T23:59:59.5Z"`}, "rTimestamp": {`["1970-01-01T00:00:01Z"]`},
	"fDuration":  {`"0s"`, `"1.5s"`, `"-1.5s"`, `"-0.000000001s"`, `"315576000000s"`, `"+3s"`, `".5s"`, `"1.s"`},
	"fFieldMask": {`""`, `"a,b.cD"`, `" a "`}, "fEmpty": {`{}`},
	"fStruct": {`{}`, `{"b": 1, "a": null, "c": {"d": [1, "x", true, {}]}}`}, "fValue": {`null`, `1.5`, `"x"`, `false`, `[]`, `{}`, `[null, {"a": 0}]`}, "rValue": {`[null, 1]`},
	"fListValue": {`[]`, `[1, null]`}, "rListValue": {`[[], [1]]`}, "mValue": {`{"a": null, "b": 1}`},
	"fDoubleValue": {`0`, `1`, `null`}, "fFloatValue": {`1.5`}, "fInt64Value": {`"0"`, `7`}, "fUInt64Value": {`7`}, "fInt32Value": {`0`, `-7`}, "rInt32Value": {`[0, 1]`},
	"fUInt32Value": {`7`}, "fBoolValue": {`false`, `true`}, "fStringValue": {`""`, `"a"`}, "fBytesValue": {`"AA=="`},
	"fNullValue": {`null`, `"NULL_VALUE"`, `0`}, "rNullValue": {`[null, "NULL_VALUE"]`},
}

func TestProtobuf_EncodesEachTypeAsTheLibraryDoes(t *testing.T) {
	e, library := both(t, kinds(), false)
	for name, values := range taken {
		for _, one := range values {
			payload := []byte(`{"` + name + `": ` + one + `}`)
			value, err := e.Append(nil, payload)
			if err != nil {
				t.Errorf("%s: %v", payload, err)
				continue
			}
			judged(t, e, library, payload, value)
		}
	}
	for _, f := range kinds().MessageType[0].Field {
		if taken[camel(f.GetName())] == nil && f.GetType() != descriptorpb.FieldDescriptorProto_TYPE_MESSAGE && f.GetLabel() == descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL {
			t.Errorf("no payload has %s", f.GetName())
		}
	}
}

func TestProtobuf_EncodesOlderAndNewerEditions(t *testing.T) {
	for _, c := range []struct {
		file     string
		payloads []string
	}{
		{orders, []string{placed, `{}`, `{"tags": {"b": "2", "a": "1"}, "iban": "x", "note": ""}`, `{"placed_at": "2026-11-25T20:05:09Z", "total_cents": 5, "card": ""}`}},
		{old, []string{`{"need": 0}`, `{"need": 1, "maybe": 0, "loose": [1, 2], "tight": [1, 2], "e": "B", "inner": {"n": "-3"}, "more": [{}, {"m": {"need": 7}}], "Other": "AA=="}`, `{"with_name": "", "need": 1}`}},
		{edition, []string{`{"need": "", "plain": 0, "there": 0}`, `{"need": "x", "apart": [1, 2], "dense": [1, 2], "e": ["A"], "inner": {"n": 1}, "byName": {"a": {"n": 0}, "b": {}}}`}},
	} {
		e, library := both(t, parsed(c.file), false)
		for _, payload := range c.payloads {
			value, err := e.Append(nil, []byte(payload))
			if err != nil {
				t.Errorf("%s: %v", payload, err)
				continue
			}
			judged(t, e, library, []byte(payload), value)
		}
	}
}

// Fields stand in the order of their numbers, and entries of maps in that of their keys, whatever
// the order of the members.
func TestProtobuf_GivesEqualBytesForEqualPayloads(t *testing.T) {
	e, _ := both(t, parsed(orders), false)
	var seen string
	for _, payload := range []string{
		`{"id": "a", "totalCents": 5, "tags": {"x": "1", "y": "2"}, "iban": "i"}`,
		`{"iban": "i", "tags": {"y": "2", "x": "1"}, "total_cents": "5.0", "i\u0064": "a", "note": null}`,
	} {
		got, err := e.Append(nil, []byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		if seen == "" {
			seen = hex.EncodeToString(got)
		}
		if want := "00" + "0a0161" + "2005" + "42060a0178120131" + "42060a0179120132" + "520169"; hex.EncodeToString(got) != want || seen != want {
			t.Errorf("%s gives %x, want %s", payload, got, want)
		}
	}
}

func TestProtobuf_SaysWhichMessageItIs(t *testing.T) {
	file := parsed(orders)
	for name, want := range map[string]string{"": "00", "shop.v1.Order": "00", ".shop.v1.Customer": "0202", "shop.v1.Order.Line": "040000"} {
		b, err := proto.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		e, err := NewCompiler(Options{Message: name}).Compile(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := e.Append(nil, []byte(`{}`))
		if err != nil || hex.EncodeToString(got) != want {
			t.Errorf("%s: %x, %v, want %s", name, got, err, want)
		}
		if back, err := e.Decode(got); err != nil || string(back) != "{}" {
			t.Errorf("%s: %s, %v", name, back, err)
		}
	}
}

func TestProtobuf_RefusesWithPathAndTypesAndWithoutTheValue(t *testing.T) {
	const secret = "hunter2"
	e, _ := both(t, parsed(orders), false)
	k, _ := both(t, kinds(), false)
	o, _ := both(t, parsed(old), false)
	for _, c := range []struct {
		e             *Encoder
		payload, want string
	}{
		{e, `{"lines": [{"qty": 1}, {"qty": "hunter2"}]}`, "$.lines[1].qty: the schema wants int32, the payload has a string that is no number"},
		{e, `{"lines": [{"qty": 1}, {"qty": 1.5}]}`, "$.lines[1].qty: the schema wants int32, the payload has a number with a fraction, or out of range"},
		{e, `{"lines": {"qty": 1}}`, "$.lines: the schema wants an array of shop.v1.Order.Line, the payload has an object"},
		{e, `{"lines": [null]}`, "$.lines[0]: the schema wants shop.v1.Order.Line, the payload has null"},
		{e, `{"customer": "hunter2"}`, "$.customer: the schema wants shop.v1.Customer, the payload has a string"},
		{e, `{"total_cents": 9223372036854775808}`, "$.total_cents: the schema wants int64, the payload has a number with a fraction, or out of range"},
		{e, `{"totalCents": true}`, "$.totalCents: the schema wants int64, the payload has a boolean"},
		{e, `{"id": 1}`, "$.id: the schema wants string, the payload has a number"},
		{e, `{"state": "hunter2"}`, "$.state: the schema wants a value of shop.v1.State, the payload has an unknown name"},
		{e, `{"placedAt": "hunter2"}`, "$.placedAt: the schema wants a time such as 2026-01-31T12:00:00Z, the payload has a string in another format"},
		{e, `{"placedAt": 17}`, "$.placedAt: the schema wants google.protobuf.Timestamp, the payload has a number"},
		{e, `{"tags": {"hunter2": 1}}`, "$.tags[*]: the schema wants string, the payload has a number"},
		{e, `{"tags": ["hunter2"]}`, "$.tags: the schema wants a map of string, the payload has an array"},
		{e, `{"tags": {"a": "1", "\u0061": "2"}}`, "$.tags[*]: is there twice"},
		{e, `{"card": "hunter2", "iban": "x"}`, "$.iban: is there beside another member of the same oneof"},
		{e, `{"id": "a", "\u0069d": "b"}`, "$.id: is there twice"},
		{e, `{"total_cents": 1, "totalCents": null}`, "$.totalCents: is there twice"},
		{e, `{"total": 1}`, "$.total: is not in the schema; add it there, or set schema.unknown_fields: drop"},
		{e, `{"[shop.ext]": 1}`, `$["[shop.ext]"]: is not in the schema`},
		{e, `[]`, "$: the schema wants shop.v1.Order, the payload has an array"},
		{e, `null`, "$: the schema wants shop.v1.Order, the payload has null"},
		{e, `{"id": NaN}`, "the payload is not JSON (byte 7)"},
		{e, `{"id": "\ud800"}`, "the payload has half of a surrogate pair (byte 8)"},
		{e, strings.Repeat(`{"lines":[`, 200), "the payload lies deeper than 256 levels"},
		{k, `{"fUint32": -1}`, "$.fUint32: the schema wants uint32, the payload has a number with a fraction, or out of range"},
		{k, `{"fUint64": 18446744073709551616}`, "the schema wants uint64, the payload has a number with a fraction, or out of range"},
		{k, `{"fFloat": 1e60}`, "$.fFloat: the schema wants float, the payload has a number out of range"},
		{k, `{"fDouble": "hunter2"}`, "$.fDouble: the schema wants double, the payload has a string that is no number"},
		{k, `{"fBool": "true"}`, "$.fBool: the schema wants bool, the payload has a string"},
		{k, `{"fBytes": "hunter2!"}`, "$.fBytes: the schema wants bytes, the payload has a string that is not base64"},
		{k, `{"mint32": {"hunter2": 1}}`, "$.mint32[*]: the schema wants keys of type int32, the payload has a key in another format"},
		{k, `{"fDuration": "hunter2s"}`, "$.fDuration: the schema wants a duration such as 1.5s, the payload has a string in another format"},
		{k, `{"fTimestamp": "2026-01-01T00:00:00.1234567891Z"}`, "the payload has a string in another format"},
		{k, `{"fTimestamp": "0000-12-31T23:59:59Z"}`, "the payload has a string in another format"},
		{k, `{"fFieldMask": "hunter_2"}`, "$.fFieldMask: the schema wants google.protobuf.FieldMask, the payload has a string in another format"},
		{k, `{"fInt32Value": "x"}`, "$.fInt32Value: the schema wants int32, the payload has a string that is no number"},
		{k, `{"fEmpty": {"x": 1}}`, "$.fEmpty.x: is not in the schema"},
		{k, `{"fListValue": {}}`, "$.fListValue: the schema wants an array of google.protobuf.Value, the payload has an object"},
		{o, `{}`, "$.need: is missing, and the schema requires it"},
		{o, `{"need": null}`, "$.need: is missing, and the schema requires it"},
		{o, `{"need": 1, "more": [{"m": {}}]}`, "$.more[0].m.need: is missing, and the schema requires it"},
		{o, `{"need": 1, "e": 3}`, "$.e: the schema wants a value of old.E, the payload has an unknown number"},
	} {
		kept := []byte("kept")
		_, err := c.e.Append(kept, []byte(c.payload))
		switch {
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%.80s: %v, want %s", c.payload, err, c.want)
		case strings.Contains(err.Error(), secret):
			t.Errorf("%s: %v", c.payload, err)
		}
	}
	d, library := both(t, parsed(orders), true)
	payload := []byte(`{"what": [{"id": {}}], "id": "a"}`)
	got, err := d.Append(nil, payload)
	if err != nil {
		t.Fatal(err)
	}
	judged(t, d, library, payload, got)
}

func TestProtobuf_RefusesSchemasThatItCannotDoRight(t *testing.T) {
	one := func(more string) string {
		return `name: "a.proto" package: "a" ` + more
	}
	for _, c := range []struct{ file, message, want string }{
		{one(`message_type { name: "M" options { message_set_wire_format: true } }`), "", "message a.M is a message set, which is not offered"},
		{one(`syntax: "editions" edition: EDITION_99999_TEST_ONLY message_type { name: "M" }`), "", "use proto2, proto3, or edition 2023 or 2024"},
		{one(`message_type { name: "M" field { name: "f" number: 1 type: TYPE_MESSAGE type_name: ".b.N" } }`), "", "type .b.N of field a.M.f is not defined; name the schema that defines it in the schema's references"},
		{one(`message_type { name: "M" } message_type { name: "M" }`), "", "message a.M is defined twice"},
		{one(`message_type { name: "M" field { name: "f" number: 1 type: TYPE_INT32 } field { name: "g" number: 1 type: TYPE_INT32 } }`), "", "message a.M has field 1 twice"},
		{one(`message_type { name: "M" field { name: "f_a" number: 1 type: TYPE_INT32 } field { name: "fA" number: 2 type: TYPE_INT32 } }`), "", "two fields with the JSON name fA"},
		{one(`message_type { name: "M" field { name: "f" number: 0 type: TYPE_INT32 } }`), "", "damaged"},
		{one(`message_type { name: "M" field { name: "f" number: 1 } }`), "", "field f of message a.M has no type"},
		{one(`message_type { name: "M" nested_type { name: "E" options { map_entry: true } } }`), "", "damaged"},
		{one(``), "", "the schema has no message"},
		{one(`message_type { name: "M" }`), "a.N", "there is no message a.N; set schema.message to a full name, with the package"},
		{one(`message_type { name: "M" }`), "google.protobuf.Struct", "is not one of the schema itself"},
		{one(`message_type { name: "M"
			nested_type { name: "E" options { map_entry: true } field { name: "key" number: 1 type: TYPE_INT32 } field { name: "value" number: 2 type: TYPE_INT32 } }
			nested_type { name: "N" } }`), "a.M.N", "clients count it differently"},
	} {
		b, err := proto.MarshalOptions{AllowPartial: true}.Marshal(parsed(c.file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewCompiler(Options{Message: c.message}).Compile(b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.file, err, c.want)
		}
	}
	if _, err := NewCompiler(Options{}).Set([]byte("no set")); err == nil || !strings.Contains(err.Error(), "--descriptor_set_out") {
		t.Errorf("no set: %v", err)
	}
}

// Names without a package, types without their kind, and no JSON names: what registries make of a text.
func TestProtobuf_TakesDescriptorsThatNoCompilerMade(t *testing.T) {
	file := parsed(orders)
	for _, m := range file.MessageType {
		for _, f := range m.Field {
			if f.TypeName != nil {
				f.Type = nil
			}
			switch f.GetTypeName() {
			case ".shop.v1.Order.Line":
				f.TypeName = proto.String("Line")
			case ".shop.v1.Customer":
				f.TypeName = proto.String("Customer")
			case ".shop.v1.State":
				f.TypeName = proto.String("v1.State")
			case ".google.protobuf.Timestamp":
				f.TypeName = proto.String("google.protobuf.Timestamp")
			}
		}
	}
	b, err := proto.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewCompiler(Options{}).Compile(b)
	if err != nil {
		t.Fatal(err)
	}
	_, library := both(t, parsed(orders), false)
	value, err := e.Append(nil, []byte(placed))
	if err != nil {
		t.Fatal(err)
	}
	judged(t, e, library, []byte(placed), value)
}

func BenchmarkProtobuf(b *testing.B) {
	e, library := both(b, parsed(orders), false)
	payload, dst := []byte(placed), make([]byte, 0, 1<<10)
	b.Run("walk", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := e.Append(dst, payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m := library.New().Interface()
			if err := protojson.Unmarshal(payload, m); err != nil {
				b.Fatal(err)
			}
			if _, err := (proto.MarshalOptions{Deterministic: true}).MarshalAppend(dst, m); err != nil {
				b.Fatal(err)
			}
		}
	})
	text, err := proto.Marshal(parsed(orders))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("compile", func(b *testing.B) {
		for b.Loop() {
			if _, err := NewCompiler(Options{}).Compile(text); err != nil {
				b.Fatal(err)
			}
		}
	})
}
