package router

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Routing must not allocate for a row: the budget of the whole path is one
// allocation in ten rows. The race detector makes pools forget, hence no zero.
func TestRoute_AllocatesLessThanOnceInTenRows(t *testing.T) {
	rel := table(t, "id uuid", "aggregate_type varchar", "aggregate_id uuid", "event_type varchar", "payload jsonb", "idempotency_key varchar", "tenant text")
	row := textRow(rel, testID, "order", "7f3b0d5e-0000-4000-8000-000000000001", "OrderCreated", `{"id": 1}`, "idem-1", "acme")
	for name, m := range map[string]Mapping{
		"raw":      {},
		"headers":  {Headers: []HeaderMapping{{"tenant", "tenant"}, {"source", "${tenant|upper}/outbox"}}},
		"envelope": {Value: format.Envelope, ValueFields: []Field{{"type", "event_type"}}},
		"regex":    {TopicRegex: `(?<routedByValue>.*)`, Topic: "x.${routedByValue}"},
	} {
		t.Run(name, func(t *testing.T) {
			r := mustNew(t, m)
			var b record.Buffer
			const rows = 1000
			got := testing.AllocsPerRun(20, func() {
				b.Reserve(rows)
				for range rows {
					if err := r.Route(&b, row); err != nil {
						t.Fatal(err)
					}
				}
				b.Reset()
			})
			if got > rows/10 {
				t.Errorf("%.0f allocations for %d rows", got, rows)
			}
		})
	}
}
