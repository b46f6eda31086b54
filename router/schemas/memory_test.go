package schemas

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// order is a schema of a usual size: 1.3 kB, with records in arrays, unions and enums.
const order = `{"type": "record", "name": "Order%[1]d", "namespace": "com.example.shop", "doc": "An order, as the shop announces it.", "fields": [
	{"name": "id", "type": {"type": "string", "logicalType": "uuid"}, "doc": "The order's own id."},
	{"name": "customer", "type": {"type": "record", "name": "Customer%[1]d", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}, {"name": "mail", "type": ["null", "string"], "default": null}]}},
	{"name": "state", "type": {"type": "enum", "name": "State%[1]d", "symbols": ["PLACED", "PAID", "SHIPPED", "CANCELLED"]}},
	{"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line%[1]d", "fields": [{"name": "sku", "type": "string"}, {"name": "qty", "type": "int"}, {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}}]}}},
	{"name": "labels", "type": {"type": "map", "values": "string"}, "default": {}},
	{"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
	{"name": "note", "type": ["null", "string"], "default": null, "doc": "Whatever the customer wrote below it, as it is."}]}`

const orderPayload = `{"id": "7f3b0d5e-0000-4000-8000-000000000001", "customer": {"id": 7, "name": "Ada", "mail": "ada@example.com"}, "state": "PAID", "lines": [{"sku": "a-1", "qty": 2, "price": "12.50"}, {"sku": "b-2", "qty": 1, "price": "7.00"}], "labels": {"channel": "web"}, "placed_at": "2026-01-31T12:00:00Z", "note": "by the door"}`

// many has as many subjects as it is asked for.
type many struct{}

func (many) Schema(_ context.Context, subject string, _ int) (*encode.Schema, error) {
	var n int
	if _, err := fmt.Sscanf(subject, "orders%d-value", &n); err != nil {
		return nil, err
	}
	return &encode.Schema{Subject: subject, Version: 1, ID: uint32(n + 1), Kind: encode.Avro, Text: fmt.Sprintf(order, n)}, nil
}

func (many) Known(context.Context, uint32) (encode.Kind, bool, error) { return "", false, nil }

// heap is what is alive.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Schemas are kept as long as the process lives, so each has to be small: 200 subjects, each with a row
// encoded, stay within 5 MB, and with what the collector leaves lying about as the program is set (20 %).
func TestTable_HoldsLittleForASubject(t *testing.T) {
	const subjects, most = 200, 5 << 20
	table, err := New(Config{Options: encode.Options{Kind: encode.Avro}})
	if err != nil {
		t.Fatal(err)
	}
	bound, err := table.Bind(func(string) (*column.Source, error) { return &column.Source{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	source := &column.Source{Column: "payload"}
	var buf record.Buffer
	var scratch []byte
	encoded := func(topic string) error {
		_, err := bound.Value(&buf, nil, source, []byte(orderPayload), topic, &scratch)
		buf.Reset()
		return err
	}
	before := heap()
	for n := range subjects {
		topic := fmt.Sprintf("orders%d", n)
		need, ok := errors.AsType[*Need](encoded(topic))
		if !ok {
			t.Fatalf("%s is known", topic)
		}
		answer, err := need.Ask(t.Context(), many{})
		if err != nil {
			t.Fatal(err)
		}
		answer.Learn()
		if err := encoded(topic); err != nil {
			t.Fatal(err)
		}
	}
	held := heap() - before
	t.Logf("%d bytes for %d subjects, %d each", held, subjects, held/subjects)
	if held*12/10 > most {
		t.Errorf("%d subjects hold %d bytes", subjects, held)
	}
	runtime.KeepAlive(table)
}
