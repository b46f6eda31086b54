package connect_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/codec"
	"github.com/cdc-relay/cdc-relay/debezium/connect/converter"
	"github.com/cdc-relay/cdc-relay/debezium/connect/expand"
)

var oids = map[string]uint32{"boolean": 16, "bytea": 17, "\"char\"": 18, "name": 19, "bigint": 20, "smallint": 21, "integer": 23, "text": 25, "oid": 26,
	"json": 114, "xml": 142, "point": 600, "box": 603, "cidr": 650, "real": 700, "double precision": 701, "macaddr8": 774, "money": 790,
	"macaddr": 829, "inet": 869, "char": 1042, "varchar": 1043, "date": 1082, "time": 1083, "timestamp": 1114, "timestamptz": 1184,
	"interval": 1186, "timetz": 1266, "bit": 1560, "varbit": 1562, "numeric": 1700, "uuid": 2950, "tsvector": 3614, "jsonb": 3802,
	"int4range": 3904, "numrange": 3906, "tsrange": 3908, "tstzrange": 3910, "daterange": 3912, "int8range": 3926}

// typeOf reads numeric(10,2), text[], enum:mood:sad,ok, domain:pos:integer or
// unknown:pg_lsn.
func typeOf(t testing.TB, name string) codec.TypeInfo {
	t.Helper()
	if elem, array := strings.CutSuffix(name, "[]"); array {
		e := typeOf(t, elem)
		return codec.TypeInfo{OID: e.OID + 100_000, Name: "_" + e.Name, TypeMod: e.TypeMod, Elem: &e}
	}
	kind, rest, _ := strings.Cut(name, ":")
	switch kind {
	case "enum":
		enum, labels, _ := strings.Cut(rest, ":")
		return codec.TypeInfo{OID: 20_000, Name: enum, TypeMod: -1, Labels: strings.Split(labels, ",")}
	case "domain":
		domain, base, _ := strings.Cut(rest, ":")
		b := typeOf(t, base)
		return codec.TypeInfo{OID: 20_001, Name: domain, TypeMod: -1, Base: &b}
	case "unknown":
		return codec.TypeInfo{OID: 3220, Name: rest, TypeMod: -1}
	}
	base, modifier, has := strings.Cut(strings.TrimSuffix(name, ")"), "(")
	typ := codec.TypeInfo{OID: oids[base], Name: base, TypeMod: -1}
	if typ.OID == 0 {
		typ.OID = 20_002 // of an extension
	}
	if has {
		p, s, _ := strings.Cut(modifier, ",")
		precision, err := strconv.Atoi(p)
		if err != nil {
			t.Fatal(err)
		}
		scale, _ := strconv.Atoi(s)
		switch base {
		case "numeric":
			typ.TypeMod = int32(precision<<16|scale) + 4
		case "varchar", "char":
			typ.TypeMod = int32(precision) + 4
		default:
			typ.TypeMod = int32(precision)
		}
	}
	return typ
}

func codecOf(t testing.TB, typ, def string, notNull bool, options map[string]string) *codec.Codec {
	t.Helper()
	modes, err := codec.ParseModes(options)
	if err != nil {
		t.Fatal(err)
	}
	codec, err := codec.New(codec.Column{Name: "c", Type: typeOf(t, typ), Default: def, NotNull: notNull}, modes)
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

func converterOf(t testing.TB, class string, options map[string]string) converter.Converter {
	t.Helper()
	c, err := converter.New(class, options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// convert is the result of a converter as a string; "<null>" for null.
func convert(t testing.TB, c converter.Converter, s *connect.Schema, v connect.Value) string {
	t.Helper()
	out, null, err := c.Append(nil, s, v)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case null:
		return "<null>"
	}
	return string(out)
}

func eachLine(t *testing.T, file string, do func(t *testing.T, line []byte)) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := 0
	for in := bufio.NewScanner(f); in.Scan(); lines++ {
		do(t, in.Bytes())
	}
	if lines < 50 {
		t.Fatalf("%s has only %d lines", file, lines)
	}
}

// The vectors are what a real Debezium and a real Connect wrote.
func TestCodec_WritesWhatDebeziumWrites(t *testing.T) {
	eachLine(t, "testdata/columns.jsonl", func(t *testing.T, line []byte) {
		var v struct {
			Case, Type, Converter, Default string
			Text, Want                     *string
			Options, Modes                 map[string]string
			NotNull                        bool `json:"not_null"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		codec := codecOf(t, v.Type, v.Default, v.NotNull, v.Modes)
		value := connect.Null
		if v.Text != nil {
			var err error
			var failed *connect.ConvertError
			if value, err = codec.Decode([]byte(*v.Text)); errors.As(err, &failed) && failed.Tolerated {
				err = nil
			}
			if err != nil {
				t.Errorf("%s: %v", v.Case, err)
				return
			}
			if err := connect.Validate("c", codec.Schema, value); err != nil {
				t.Errorf("%s: %v", v.Case, err)
			}
		}
		want := "<null>"
		if v.Want != nil {
			want = *v.Want
			if raw, ok := strings.CutPrefix(want, "base64:"); ok {
				b, err := base64.StdEncoding.DecodeString(raw)
				if err != nil {
					t.Fatal(err)
				}
				want = string(b)
			}
		}
		if got := convert(t, converterOf(t, v.Converter, v.Options), codec.Schema, codec.Schema.Or(value)); got != want {
			t.Errorf("%s\n got %s\nwant %s", v.Case, got, want)
		}
	})
}

func TestExpand_WritesWhatDebeziumWrites(t *testing.T) {
	eachLine(t, "testdata/expand.jsonl", func(t *testing.T, line []byte) {
		var v struct {
			Case, Type, Payload, Converter string
			Options                        map[string]string
			Want                           *string
			NullBytes                      bool `json:"null_bytes"`
			Fails                          bool
			AnyOrder                       bool `json:"any_order"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		codec := codecOf(t, v.Type, "", false, nil)
		value, err := codec.Decode([]byte(v.Payload))
		if err != nil {
			t.Fatal(err)
		}
		x := expand.New(expand.Options{Root: "payload", NullBytes: v.NullBytes}).Expand(codec.Schema, value)
		out, null, err := converterOf(t, v.Converter, v.Options).Append(nil, x.Schema, x.Value)
		switch {
		case v.Fails:
			if err == nil || x.Outcome != expand.Poison {
				t.Errorf("%s %s: outcome %d, error %v, want a poison and the converter's refusal", v.Case, v.Payload, x.Outcome, err)
			}
		case err != nil || null:
			t.Errorf("%s %s: error %v, null %t", v.Case, v.Payload, err, null)
		case v.AnyOrder:
			if !sameJSON(t, out, []byte(*v.Want)) {
				t.Errorf("%s\n got %s\nwant %s in any order", v.Case, out, *v.Want)
			}
		case string(out) != *v.Want:
			t.Errorf("%s\n got %s\nwant %s", v.Case, out, *v.Want)
		}
	})
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	normal := func(in []byte) string {
		var v any
		if err := json.Unmarshal(in, &v); err != nil {
			t.Fatal(err)
		}
		out, _ := json.Marshal(v)
		return string(out)
	}
	return normal(a) == normal(b)
}
