package router

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// BenchmarkRoute routes rows of our own table shape with a payload of about
// 300 bytes; allocs/op must be 0 but for what merged and envelope never need.
func BenchmarkRoute(b *testing.B) {
	payload := `{"id": 1, "customer": "7f3b0d5e-0000-4000-8000-000000000001", "lines": [` + strings.Repeat(`{"sku": "a-1", "n": 2}, `, 8) + `{"sku": "z", "n": 1}], "note": "é"}`
	columns := []string{"id uuid", "aggregate_type varchar", "aggregate_id uuid", "event_type varchar", "payload jsonb", "idempotency_key varchar", "headers jsonb", "tenant text"}
	values := []string{"406c07f3-26f0-4eea-a50c-109940064b8f", "order", "7f3b0d5e-0000-4000-8000-000000000001", "OrderCreated", payload, "idem-1", `{"a": "1", "b": 2}`, "acme"}
	plain := table(b, columns[:6]...)
	full := table(b, columns...)
	for _, c := range []struct {
		name   string
		m      Mapping
		full   bool
		binary bool
	}{
		{name: "raw/text"},
		{name: "raw/binary", binary: true},
		{name: "raw/headers", full: true, m: Mapping{Headers: []HeaderMapping{{"tenant", "tenant"}, {"source", "${tenant|upper}/outbox"}}}},
		{name: "json_string", m: Mapping{Key: format.JSONString, Value: format.JSONString}},
		{name: "envelope", m: Mapping{Value: format.Envelope, ValueFields: []Field{{"type", "event_type"}}}},
		{name: "merged", m: Mapping{Value: format.Merged, ValueFields: []Field{{"type", "event_type"}, {"idempotency_key", "idempotency_key"}}}},
		{name: "regex", m: Mapping{TopicRegex: `(?<routedByValue>.*)`, Topic: "x.${routedByValue}"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			rel, n := plain, 6
			if c.full {
				rel, n = full, len(values)
			}
			row := textRow(rel, values[:n]...)
			if c.binary {
				row = binaryRow(b, row)
			}
			r := mustNew(b, c.m)
			var buf record.Buffer
			b.ReportAllocs()
			for b.Loop() {
				if len(buf.Records) == 1000 {
					buf.Reset()
				}
				if err := r.Route(&buf, row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
