package relay

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/tracing"
	"github.com/cdc-relay/cdc-relay/tracing/export"
	"github.com/rs/zerolog"
)

// Trace contexts of a row.
const (
	sampledContext   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	unsampledContext = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

// BenchmarkTracing says in one run what tracing costs: of the CPU time that a row of a drain takes, the
// part that looking at the context of an unsampled row adds; and of one core, what 1000 spans a second
// take from Pick to the answer of a collector, which is in this process too and so counted.
func BenchmarkTracing(b *testing.B) {
	const drained, spans = 50_000, 20_000
	d := startDrain(b, 4, Config{})
	d.rows(2 * drained)
	row, look, span := time.Hour, time.Hour, time.Hour
	off, on := lookers(b)
	for b.Loop() {
		began := cpuTime(b)
		d.rows(drained)
		row = min(row, (cpuTime(b)-began)/drained)
		for range 200 { // pieces take turns, and the quickest of each counts
			off.piece(b)
			on.piece(b)
		}
		look = on.best - off.best
		span = min(span, exported(b, spans))
	}
	b.ReportMetric(float64(row.Nanoseconds()), "cpu-ns/row")
	b.ReportMetric(float64(look.Nanoseconds())/lookedAt, "unsampled-ns/row")
	b.ReportMetric(100*float64(look.Nanoseconds())/lookedAt/float64(row.Nanoseconds()), "unsampled-%-of-a-row")
	b.ReportMetric(float64(span.Nanoseconds()), "cpu-ns/span")
	b.ReportMetric(100*float64(span.Nanoseconds())*1000/1e9, "%-of-a-core-at-1000-spans/s")
}

// lookedAt is how many rows of a piece are routed.
const lookedAt = 500

// looker routes rows whose context is not sampled.
type looker struct {
	routes *router.Router
	row    *wal.Row
	buf    record.Buffer
	best   time.Duration // of a piece
}

func lookers(b *testing.B) (off, on *looker) {
	columns := append(drainColumns[:len(drainColumns):len(drainColumns)], wal.Column{Name: "traceparent", Type: 25})
	rel := &wal.Relation{OID: 16400, Namespace: "public", Name: "outbox", Columns: columns}
	row := &wal.Row{Txn: &wal.Txn{}, Relation: rel}
	for _, v := range []string{"00000000-0000-7000-8000-000000000001", "bench0", "00000000-0000-4000-8000-000000000001", "Changed", `{"n": 1}`, "", "", "", "0", "", unsampledContext} {
		row.Values = append(row.Values, wal.Value{Kind: wal.Text, Data: []byte(v)})
	}
	made := func(tracer *tracing.Tracer) *looker {
		routes, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Preset: "outbox"}}, Tracer: tracer})
		if err != nil {
			b.Fatal(err)
		}
		return &looker{routes: routes, row: row, best: time.Hour}
	}
	return made(nil), made(tracing.New(tracing.Config{MaxPerSecond: 1000}, new(spans)))
}

func (l *looker) piece(b *testing.B) {
	l.buf.Reserve(lookedAt)
	began := time.Now()
	for range lookedAt {
		if err := l.routes.Route(&l.buf, l.row); err != nil {
			b.Fatal(err)
		}
	}
	l.best = min(l.best, time.Since(began))
	l.buf.Reset()
}

// exported is the CPU time of a span that a collector takes.
func exported(b *testing.B, n int) time.Duration {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer collector.Close()
	exporter, tracer := export.New(export.Config{Endpoint: collector.URL + "/v1/traces", Resource: tracing.Resource{Pipeline: "bench", Slot: "cdc_relay"}},
		tracing.Config{MaxPerSecond: 1 << 30, Database: "shop"}, zerolog.Nop())
	exporter.Start()
	defer exporter.Close(nil)
	picker := tracer.Picker()
	began, commit := cpuTime(b), time.Now()
	for made := 0; made < n; {
		const piece = 512
		for range piece / tracing.PerRow {
			s := picker.Pick([]byte(sampledContext))
			s.Row = tracing.Row{Table: "public.outbox", Topic: "bench0-events", EventID: "00000000-0000-7000-8000-000000000001", LSN: "0/16B3748", Seq: 1, Commit: commit, Size: 300}
			now := time.Now()
			s.HandedOver(now)
			s.End(now.Add(time.Millisecond))
		}
		made += piece
		for deadline := time.Now().Add(time.Minute); tracer.Counts()[tracing.Sent] < int64(made); {
			if time.Now().After(deadline) {
				b.Fatalf("%v of %d", tracer.Counts(), made)
			}
			<-time.After(100 * time.Microsecond)
		}
	}
	return (cpuTime(b) - began) / time.Duration(n)
}
