package connect_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/codec"
	"github.com/cdc-relay/cdc-relay/debezium/connect/expand"
)

// fuzzTypes give each parser one letter of the fuzz input.
var fuzzTypes = []string{"integer", "double precision", "numeric", "numeric(10,2)", "money", "bytea", "date", "time(3)", "timetz", "timestamp", "timestamptz(3)",
	"interval", "bit(9)", "varbit", "point", "hstore", "text[]", "integer[]", "timestamptz[]", "hstore[]", "boolean", "uuid", "jsonb"}

// FuzzDecode feeds every column type: a value fits its schema and every
// converter that takes it writes legal output.
func FuzzDecode(f *testing.F) {
	for i, text := range []string{"1", "1e10", "1.50", "-0.05", "-$1,234.50", `\xdead`, "2024-02-29", "24:00:00", "23:59:59.999999-12", "0044-03-15 12:00:00 BC",
		"2024-02-29 13:14:15.1+02", "1 year 2 mons -3 days +04:05:06.78", "000000101", "1", "(1.5,-2)", `"a"=>"1", "b\"\\"=>NULL`, `{a,"b \"c",NULL}`, "{1,NULL}",
		`{"2024-02-29 11:14:15+00"}`, `{"\"a\"=>\"1\""}`, "t", "x", "{}"} {
		f.Add(uint8(i), text)
	}
	codecs := make([]*codec.Codec, 0, 2*len(fuzzTypes))
	for _, mode := range []map[string]string{{"event.converting.failure.handling.mode": "fail"},
		{"event.converting.failure.handling.mode": "fail", "time.precision.mode": "isostring", "decimal.handling.mode": "string", "interval.handling.mode": "string", "hstore.handling.mode": "map", "binary.handling.mode": "base64"}} {
		for _, typ := range fuzzTypes {
			codecs = append(codecs, codecOf(f, typ, "", false, mode))
		}
	}
	jsons := converterOf(f, jsonic, map[string]string{"decimal.format": "NUMERIC"})
	simples := converterOf(f, simple, nil)
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		if !utf8.ValidString(text) {
			return
		}
		codec := codecs[int(which)%len(codecs)]
		before := text
		v, err := codec.Decode([]byte(text))
		if text != before {
			t.Fatal("the input was changed")
		}
		var failed *connect.ConvertError
		if err != nil {
			if !errors.As(err, &failed) {
				t.Fatal(err)
			}
			return
		}
		if err := connect.Validate("c", codec.Schema, v); err != nil {
			t.Fatal(err)
		}
		out, _, err := jsons.Append(nil, codec.Schema, v)
		if err != nil || !json.Valid(out) {
			t.Fatalf("%v: %s", err, out)
		}
		if out, _, err := simples.Append(nil, codec.Schema, v); err != nil || !utf8.Valid(out) {
			t.Fatalf("%v: %q", err, out)
		}
	})
}

// FuzzExpand compares with the standard library: what it takes for an object
// is one here too, and what is expanded is JSON again.
func FuzzExpand(f *testing.F) {
	for _, in := range []string{`{"a":1,"b":[1,2.5]}`, `{"items":[{"p":1},{"q":[]}]}`, `{"a":1,"a":{"b":null}}`, `{"a":"\ud83d\ude00\ud83d"}`, `[]`, `[{"a":1}]`,
		`{"a":1e400,"b":-0.0,"c":9223372036854775808}`, `{"a":1} x`, `{"":1}`, `{"a":[[],[1]]}`, "{", "[1,", `{"a":01}`} {
		f.Add(in, false)
		f.Add(in, true)
	}
	jsons := converterOf(f, jsonic, map[string]string{"schemas.enable": "false"})
	texts := converterOf(f, text, nil)
	f.Fuzz(func(t *testing.T, in string, nulls bool) {
		if !utf8.ValidString(in) {
			return
		}
		e := expand.New(expand.Options{Root: "payload", NullBytes: nulls, EmptyAsString: nulls})
		first := e.Expand(connect.OptionalStringSchema, connect.StringValue(in))
		again := e.Expand(connect.OptionalStringSchema, connect.StringValue(in))
		if first.Outcome != again.Outcome || first.Outcome == expand.Expanded && first.Schema != again.Schema && len(in) < 1000 {
			t.Fatal("the second time it is something else")
		}
		if out, _, err := texts.Append(nil, first.Schema, first.Value); err != nil || !utf8.Valid(out) {
			t.Fatalf("%v: %q", err, out)
		}
		out, null, err := jsons.Append(nil, first.Schema, first.Value)
		switch first.Outcome {
		case expand.Expanded:
			if err := connect.Validate("v", first.Schema, first.Value); err != nil {
				t.Fatal(err)
			}
			if err != nil || null || !json.Valid(out) || out[0] != '{' {
				t.Fatalf("%v: %s", err, out)
			}
		case expand.Kept:
			if err != nil || out[0] != '"' {
				t.Fatalf("%v: %s", err, out)
			}
			if json.Valid([]byte(in)) && first.Reason.Error() == "not JSON" && len(in) < 1000 {
				t.Fatalf("refused as not JSON: %q", in)
			}
		case expand.Poison:
			if err == nil && first.Schema != nil {
				t.Fatalf("a poison was written: %s", out)
			}
		case expand.Untouched:
			t.Fatal("a string was left untouched")
		}
		if d := json.NewDecoder(bytes.NewReader([]byte(in))); first.Outcome == expand.Expanded {
			var any json.RawMessage
			if err := d.Decode(&any); err != nil {
				t.Fatalf("expanded, but %v", err)
			}
		}
	})
}

// FuzzDefault reads any default expression without a panic, into what the
// column's schema takes.
func FuzzDefault(f *testing.F) {
	for i, expression := range []string{"5", "'1.5'::numeric", "now()", "'a' || 'b'", "NULL::text", "'it''s'::text", "B'101'::\"bit\"", "'ok'::mood", "'", "(1 + 2)"} {
		f.Add(uint8(i), expression)
	}
	types := append([]string{"text", "smallint", "enum:mood:sad,ok", "numeric(6,2)", "bit(3)", "bit(1)"}, fuzzTypes...)
	modes := codec.DefaultModes()
	jsons := converterOf(f, jsonic, nil)
	f.Fuzz(func(t *testing.T, which uint8, expression string) {
		codec, err := codec.New(codec.Column{Name: "c", Type: typeOf(t, types[int(which)%len(types)]), Default: expression}, modes)
		if err != nil {
			t.Fatal(err)
		}
		if out, _, err := jsons.Append(nil, codec.Schema, connect.Null); err != nil || utf8.ValidString(expression) && !json.Valid(out) {
			t.Fatalf("%v: %s", err, out)
		}
	})
}
