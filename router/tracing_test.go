package router

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/record/recordtest"
	"github.com/cdc-relay/cdc-relay/tracing"
)

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

type nowhere struct{}

func (nowhere) Add(*tracing.Span) bool { return true }

func withTracer(t testing.TB, m Mapping, cfg tracing.Config) (*Router, *tracing.Tracer) {
	t.Helper()
	m.Table = "public.outbox"
	if cfg.MaxPerSecond == 0 {
		cfg.MaxPerSecond = 1 << 30
	}
	tracer := tracing.New(cfg, nowhere{})
	r, err := New(Config{Mappings: []Mapping{m}, Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	return r, tracer
}

func tracedTable(t testing.TB) *wal.Relation {
	return table(t, "id uuid", "aggregate_type varchar", "aggregate_id varchar", "event_type varchar", "payload jsonb", "headers jsonb", "traceparent text")
}

func tracedRow(rel *wal.Relation, headers, parent string) *wal.Row {
	return textRow(rel, testID, "order", "k", "Placed", `{"n":1}`, headers, parent)
}

func routed(t testing.TB, r *Router, row *wal.Row) (*record.Buffer, *record.Record) {
	t.Helper()
	b := new(record.Buffer)
	if err := r.Route(b, row); err != nil {
		t.Fatal(err)
	}
	return b, &b.Records[0]
}

func valuesOf(r *record.Record, name string) (all []string) {
	for _, h := range r.Headers {
		if h.Key == name {
			all = append(all, string(h.Value))
		}
	}
	return all
}

// With tracing on, a row that is not traced gives the record that it gives without, byte for byte.
func TestTracing_LeavesRecordsOfOtherRowsAsTheyAre(t *testing.T) {
	rel := tracedTable(t)
	full := tracing.Config{MaxPerSecond: 1}
	for name, c := range map[string]struct {
		cfg     tracing.Config
		headers string
		parent  string
	}{
		"no context":                  {tracing.Config{}, `{"a":"b"}`, null},
		"not sampled":                 {tracing.Config{Sample: tracing.ParentOrRatio, Ratio: 1}, `{"a":"b"}`, unsampled},
		"malformed":                   {tracing.Config{Sample: tracing.ParentOrRatio, Ratio: 1}, `{"a":"b"}`, "00-nonsense"},
		"zeros":                       {tracing.Config{}, null, "00-00000000000000000000000000000000-0000000000000000-01"},
		"over the rate":               {full, `{"tracestate":"a=b"}`, sampled},
		"over the rate, headers only": {full, `{"traceparent":"` + sampled + `"}`, null},
	} {
		for _, m := range []Mapping{{}, {Value: format.CloudEvents}, {Value: format.CloudEventsBinary}} {
			t.Run(name+" "+m.Value, func(t *testing.T) {
				row := tracedRow(rel, c.headers, c.parent)
				_, want := routed(t, mustNew(t, m), row)
				r, _ := withTracer(t, m, c.cfg)
				b, got := routed(t, r, row)
				if a, b := recordtest.Show(*got), recordtest.Show(*want); a != b {
					t.Errorf("%s\nwant\n%s", a, b)
				}
				if got.Span != 0 || len(b.Spans) != 0 {
					t.Error("it is traced")
				}
			})
		}
	}
}

// Nothing of the record of a traced row changes but its traceparent.
func TestTracing_ATracedRecordNamesTheSpanOfSending(t *testing.T) {
	rel := tracedTable(t)
	for name, c := range map[string]struct{ headers, parent string }{
		"trace column":   {null, sampled},
		"json":           {null, `{"traceparent":"` + sampled + `","tracestate":"a=b"}`},
		"properties":     {null, "traceparent=" + sampled + "\ntracestate=a\\=b"},
		"headers column": {`{"x":"y","traceparent":"` + sampled + `","z":"1"}`, null},
		"both":           {`{"traceparent":"` + unsampled + `"}`, sampled},
	} {
		for _, m := range []Mapping{{}, {Value: format.CloudEvents}, {Value: format.CloudEventsBinary}} {
			t.Run(name+" "+m.Value, func(t *testing.T) {
				row := tracedRow(rel, c.headers, c.parent)
				_, plain := routed(t, mustNew(t, m), row)
				want := recordtest.Show(*plain)
				r, _ := withTracer(t, m, tracing.Config{})
				b, got := routed(t, r, row)
				span := b.Spans[got.Span-1]
				text := string(tracing.AppendParent(nil, span.Context()))
				if text[:36] != sampled[:36] || text[36:52] == sampled[36:52] || text[53:] != "01" {
					t.Errorf("traceparent %s", text)
				}
				parents := valuesOf(got, "traceparent")
				if len(parents) == 0 || slices.ContainsFunc(parents, func(p string) bool { return p != text }) {
					t.Errorf("headers %q, want %s", parents, text)
				}
				for i := range got.Headers {
					if got.Headers[i].Key == "traceparent" {
						got.Headers[i].Value = plain.Headers[i].Value
					}
				}
				if a := recordtest.Show(*got); a != want {
					t.Errorf("%s\nwant\n%s", a, want)
				}
				if span.Table != "public.outbox" || span.Topic != got.Topic || span.EventID != testID || span.Size != len(got.Value) || span.LSN == "" || span.Seq != 3 {
					t.Errorf("%+v", span.Row)
				}
			})
		}
	}
}

// What no mapping reads says nothing.
func TestTracing_ReadsNoColumnThatIsNotMapped(t *testing.T) {
	rel := table(t, "id uuid", "aggregate_type varchar", "aggregate_id varchar", "event_type varchar", "payload jsonb", "tracingspancontext text")
	r, _ := withTracer(t, Mapping{Preset: "outbox"}, tracing.Config{})
	if b, _ := routed(t, r, textRow(rel, testID, "order", "k", "Placed", "{}", "traceparent="+sampled)); len(b.Spans) != 0 {
		t.Error("the row is traced")
	}
}

// A row without context that the ratio takes gets a header; with position headers it stands before those.
func TestTracing_ARowWithoutContextGetsOne(t *testing.T) {
	rel := tracedTable(t)
	r, err := New(Config{
		Mappings: []Mapping{{Table: "public.outbox"}}, PositionHeaders: true,
		Tracer: tracing.New(tracing.Config{Sample: tracing.ParentOrRatio, Ratio: 1, MaxPerSecond: 1 << 30}, nowhere{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, got := routed(t, r, tracedRow(rel, `{"a":"b"}`, null))
	var names []string
	for _, h := range got.Headers {
		names = append(names, h.Key)
	}
	if want := "id eventType a traceparent cdc-relay-lsn cdc-relay-seq cdc-relay-commit-time"; strings.Join(names, " ") != want {
		t.Errorf("%s, want %s", strings.Join(names, " "), want)
	}
	if c, ok := tracing.ParseParent(valuesOf(got, "traceparent")[0]); !ok || !c.Sampled() {
		t.Errorf("%+v", c)
	}
}

// The state belongs to the row's trace, and the record is in another one.
func TestTracing_ALinkedRecordHasNoStateOfTheRowsTrace(t *testing.T) {
	rel := tracedTable(t)
	for mode, want := range map[tracing.Mode]int{tracing.Child: 1, tracing.Link: 0} {
		r, _ := withTracer(t, Mapping{}, tracing.Config{Mode: mode})
		_, got := routed(t, r, tracedRow(rel, `{"a":"b"}`, `{"traceparent":"`+sampled+`","tracestate":"v=1"}`))
		if n := len(valuesOf(got, "tracestate")); n != want || len(got.Headers) != 4+want || valuesOf(got, "a")[0] != "b" {
			t.Errorf("%s: %v", mode, got.Headers)
		}
	}
}

// A row that the router refuses may still be traced: its letter has the header.
func TestTracing_SalvagedRecordsAreTraced(t *testing.T) {
	rel := tracedTable(t)
	row := textRow(rel, testID, null, "k", "Placed", `{"n":1}`, null, sampled)
	r, tracer := withTracer(t, Mapping{}, tracing.Config{})
	b := new(record.Buffer)
	if err := r.Route(b, row); err == nil {
		t.Fatal("the row is good")
	}
	rec, _ := r.Salvage(b, row)
	if rec.Span == 0 || valuesOf(&rec, "traceparent")[0] == sampled || tracer.Counts()[tracing.DroppedRate] != 0 {
		t.Errorf("%+v", rec)
	}
}

// Spans are of the buffer that has their records, whatever came before.
func TestTracing_SpansBelongToTheirRecords(t *testing.T) {
	rel := tracedTable(t)
	r, _ := withTracer(t, Mapping{}, tracing.Config{})
	random := rand.New(rand.NewPCG(1, 2))
	var b record.Buffer
	for round := range 20 {
		n := 1 + random.IntN(300)
		b.Reserve(n)
		traced := 0
		for i := range n {
			parent := unsampled
			if random.IntN(3) == 0 {
				parent, traced = sampled, traced+1
			}
			row := tracedRow(rel, null, parent)
			row.Ordinal = uint64(i)
			if err := r.Route(&b, row); err != nil {
				t.Fatal(err)
			}
		}
		for i := range b.Records {
			rec := &b.Records[i]
			parent := valuesOf(rec, "traceparent")[0]
			if (rec.Span != 0) != (parent != unsampled) {
				t.Fatalf("record %d: span %d, %s", i, rec.Span, parent)
			}
			if rec.Span == 0 {
				continue
			}
			traced--
			if s := b.Spans[rec.Span-1]; s.Seq != uint64(i) || !bytes.Contains([]byte(parent), fmt.Appendf(nil, "%x", s.Context().Span)) {
				t.Fatalf("record %d has the span of another: %+v", i, s.Row)
			}
		}
		if traced != 0 {
			t.Fatalf("round %d: %d spans too few", round, traced)
		}
		if b.Reset(); len(b.Spans) != 0 {
			t.Fatal("spans outlive their records")
		}
	}
}

// Rows that are not traced cost no allocation more.
func TestTracing_AllocatesNothingForRowsThatAreNotTraced(t *testing.T) {
	rel := tracedTable(t)
	r, _ := withTracer(t, Mapping{}, tracing.Config{Sample: tracing.ParentOrRatio})
	for _, parent := range []string{null, unsampled} {
		row := tracedRow(rel, null, parent)
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
			t.Errorf("%s: %.0f allocations for %d rows", parent, got, rows)
		}
	}
}

// What tracing costs a row that is not traced, with a context and without. Pieces of both routers
// alternate, and the quickest of each counts: what else the machine does only adds.
func BenchmarkTracing_RowsThatAreNotTraced(b *testing.B) {
	const rows = 500
	rel := tracedTable(b)
	on, _ := withTracer(b, Mapping{}, tracing.Config{})
	routers := []*Router{mustNew(b, Mapping{}), on}
	for name, parent := range map[string]string{"unsampled": unsampled, "without": null} {
		b.Run(name, func(b *testing.B) {
			row, best := tracedRow(rel, null, parent), []time.Duration{time.Hour, time.Hour}
			var buf record.Buffer
			for b.Loop() {
				for i, r := range routers {
					buf.Reserve(rows)
					began := time.Now()
					for range rows {
						if err := r.Route(&buf, row); err != nil {
							b.Fatal(err)
						}
					}
					best[i] = min(best[i], time.Since(began))
					buf.Reset()
				}
			}
			b.ReportMetric(float64(best[0].Nanoseconds())/rows, "ns/row-off")
			b.ReportMetric(float64(best[1].Nanoseconds())/rows, "ns/row-on")
		})
	}
}
