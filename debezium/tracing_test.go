package debezium_test

import (
	"encoding/hex"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/record/recordtest"
	"github.com/cdc-relay/cdc-relay/tracing"
)

type nowhere struct{}

func (nowhere) Add(*tracing.Span) bool { return true }

// A row that is traced has the records that Debezium makes, to the byte, and its trace is that of
// the column which Debezium reads, or of a header.
func TestTracing_LeavesDebeziumsRecordsAsTheyAre(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	const parent = "00-" + trace + "-b7ad6b7169203331-01"
	rel := described(t, "id uuid#", "aggregatetype text!", "aggregateid text!", "type text!", "payload text", "tracingspancontext text", "context text")
	for name, c := range map[string]struct {
		column, header string
		traced         bool
	}{
		"column":      {"#Tue Jan 02 12:00:00 UTC 2024\ntraceparent=" + parent + "\n", "", true},
		"header":      {"", parent, true},
		"not sampled": {"traceparent=" + parent[:53] + "00", "", false},
		"neither":     {"other=" + parent, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			row := &wal.Row{Relation: rel, Txn: &wal.Txn{XID: 7, Commit: 0x100}, Ordinal: 1}
			for _, v := range []string{"0b8ea2b5-9c4f-4a3f-9a2e-0b7f3a1c5d11", "order", "k", "Placed", `{"n":1}`, c.column, c.header} {
				row.Values = append(row.Values, wal.Value{Kind: wal.Text, Data: []byte(v)})
			}
			show := func(tracer *tracing.Tracer) (string, *record.Buffer) {
				r, err := router.New(router.Config{Tracer: tracer, Mappings: []router.Mapping{{Table: "public.outbox", Connector: dbz(placed("context:header:traceparent"))}}})
				if err != nil {
					t.Fatal(err)
				}
				b := new(record.Buffer)
				if err := r.Route(b, row); err != nil {
					t.Fatal(err)
				}
				return recordtest.Show(b.Records[0]), b
			}
			want, _ := show(nil)
			got, b := show(tracing.New(tracing.Config{MaxPerSecond: 100}, nowhere{}))
			if got != want {
				t.Errorf("%s\nwant\n%s", got, want)
			}
			if c.traced != (len(b.Spans) == 1) {
				t.Fatalf("%d spans", len(b.Spans))
			}
			if of := b.Records[0].Span; c.traced {
				if context := b.Spans[of-1].Context(); hex.EncodeToString(context.Trace[:]) != trace {
					t.Errorf("trace %x", context.Trace)
				}
			}
		})
	}
}
