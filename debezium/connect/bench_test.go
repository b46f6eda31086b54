package connect_test

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/converter"
	"github.com/cdc-relay/cdc-relay/debezium/connect/expand"
)

func BenchmarkDecode(b *testing.B) {
	for typ, text := range map[string]string{"integer": "2147483647", "jsonb": `{"a": 1}`, "numeric(10,2)": "12.50", "numeric": "1234500.00", "timestamptz": "2024-02-29 13:14:15.1+00",
		"timestamp": "2024-02-29 13:14:15.123456", "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "hstore": `"a"=>"1", "b"=>"2"`, "text[]": `{a,"b c",NULL}`, "interval": "1 mon 04:05:06.78"} {
		b.Run(typ, func(b *testing.B) {
			codec, data := codecOf(b, typ, "", false, nil), []byte(text)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := codec.Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

const order = `{"order":{"id":7,"lines":[{"sku":"A","qty":1},{"sku":"B","qty":2}],"note":null,"addr":{"zip":"0800"}},"tags":["x","y"],"total":12.5}`

func BenchmarkExpand(b *testing.B) {
	e := expand.New(expand.Options{Root: "payload"})
	v := connect.StringValue(order)
	b.SetBytes(int64(len(order)))
	b.ReportAllocs()
	for b.Loop() {
		if x := e.Expand(connect.OptionalStringSchema, v); x.Outcome != expand.Expanded {
			b.Fatal(x.Reason)
		}
	}
}

func BenchmarkConverter(b *testing.B) {
	expanded := expand.New(expand.Options{Root: "payload"}).Expand(nil, connect.StringValue(order))
	text := connect.StringValue(strings.Repeat(`{"a": "é"}`, 100))
	no := map[string]string{"schemas.enable": "false"}
	for name, c := range map[string]struct {
		converter converter.Converter
		schema    *connect.Schema
		value     connect.Value
	}{
		"json-text":     {converterOf(b, jsonic, no), connect.OptionalStringSchema, text},
		"json-struct":   {converterOf(b, jsonic, no), expanded.Schema, expanded.Value},
		"json-schema":   {converterOf(b, jsonic, nil), expanded.Schema, expanded.Value},
		"string-text":   {converterOf(b, converter.ClassString, nil), connect.OptionalStringSchema, text},
		"simple-struct": {converterOf(b, simple, nil), expanded.Schema, expanded.Value},
	} {
		b.Run(name, func(b *testing.B) {
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, _, err = c.converter.Append(dst[:0], c.schema, c.value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
