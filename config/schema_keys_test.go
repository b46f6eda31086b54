package config

import (
	"strings"
	"testing"
)

// A key of one language of schemas is refused beside another.
func TestSchemas_KeysThatDoNotFitTheValueAreRefused(t *testing.T) {
	for _, c := range []struct{ table, want string }{
		{"value: json_schema, schema: {validate: true}", ""},
		{"value: json_schema, schema: {subject: 'a', version: '3'}", ""},
		{"value: protobuf, schema: {message: shop.Order, unknown_fields: drop}", ""},
		{"value: protobuf, schema: {file: order.schema, id: '7', message: M}", ""},
		{"value: avro, schema: {unknown_fields: drop, bytes: base64}", ""},
		{"value: json_schema, schema: {bytes: base64}", "outbox[0].schema.bytes: has no effect without outbox[].value: avro"},
		{"value: json_schema, schema: {unknown_fields: drop}", "outbox[0].schema.unknown_fields: has no effect without outbox[].value: avro or protobuf"},
		{"value: json_schema, schema: {message: shop.Order}", "outbox[0].schema.message: has no effect without outbox[].value: protobuf"},
		{"value: protobuf, schema: {validate: true}", "outbox[0].schema.validate: has no effect without outbox[].value: json_schema"},
		{"value: protobuf, schema: {bytes: latin1}", "outbox[0].schema.bytes: has no effect without outbox[].value: avro"},
		{"value: avro, schema: {message: a.B}", "outbox[0].schema.message: has no effect without outbox[].value: protobuf"},
		{"value: avro, schema: {validate: true}", "outbox[0].schema.validate: has no effect without outbox[].value: json_schema"},
		{"value: raw, schema: {subject: a}", "outbox[0].schema.subject: has no effect without outbox[].value: avro, json_schema or protobuf"},
		{"value: protobuf, schema: {check: confluent}", "outbox[0].schema.check: looks at payloads that are sent as they are, and value: protobuf encodes them"},
	} {
		registry := ", registry: {url: [http://127.0.0.1:8081]}"
		if strings.Contains(c.table, "raw") || strings.Contains(c.table, "file:") {
			registry = ""
		}
		_, err := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{
			"order.schema": "\n\x05\"\x03\n\x01M", // a descriptor set with message M
			"f":            "postgres: {url: 'postgres://relay@127.0.0.1/shop'}\noutbox:\n  - {table: public.outbox, " + c.table + "}\nkafka: {brokers: ['127.0.0.1:9092']" + registry + "}\n",
		}.read})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.table, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.table, err, c.want)
		}
	}
}
