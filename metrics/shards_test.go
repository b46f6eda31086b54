package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/tracing"
)

// Two shards share a registry, and neither counts for the other.
func TestNewShards_AreToldApart(t *testing.T) {
	all := NewShards(Options{Pipeline: "orders"}, []int{0, 3})
	all[0].Events().Reconnecting("network", nil)
	all[1].Events().DeadLettered("route")
	all[0].Watch(func() status.Status { return status.Status{State: status.Streaming} })
	all[1].Watch(func() status.Status { return status.Status{State: status.Blocked, Reason: "route"} })
	all[0].WatchMaintenance(func() []status.Maintenance {
		seconds := 1.5
		return []status.Maintenance{
			{Table: "public.outbox", Job: "retention", Then: "delete", State: status.JobIdle, Rows: 12, OldestRow: &seconds, HeldBack: map[string]int{status.HeldByLetter: 3}},
			{Table: "public.other", Job: "retention", Then: "archive", State: status.JobPaused, Reason: "no_index"},
			{Table: "public.files", Job: "retention", Then: "export", State: status.JobIdle, Exported: 42},
			{Table: "public.parts", Job: "retention", Then: "drop_partition", State: status.JobIdle, Partitions: &status.Partitions{Ahead: 7, Held: 1, Removed: 3}},
		}
	})
	w := httptest.NewRecorder()
	all[0].Registry().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	for _, want := range []string{
		`cdc_relay_reconnects_total{pipeline="orders",reason="network",shard="0"} 1`,
		`cdc_relay_reconnects_total{pipeline="orders",reason="network",shard="3"} 0`,
		`cdc_relay_dead_letters_total{pipeline="orders",reason="route",shard="3"} 1`,
		`cdc_relay_state{pipeline="orders",shard="0",state="streaming"} 1`,
		`cdc_relay_state{pipeline="orders",shard="3",state="blocked"} 1`,
		`cdc_relay_state_reason{pipeline="orders",reason="route",shard="3",state="blocked"} 1`,
		`cdc_relay_retention_rows_total{pipeline="orders",table="public.outbox",then="delete"} 12`,
		`cdc_relay_retention_oldest_row_seconds{pipeline="orders",table="public.outbox"} 1.5`,
		`cdc_relay_retention_held_back_rows{pipeline="orders",reason="dead_letter",table="public.outbox"} 3`,
		`cdc_relay_retention_paused{pipeline="orders",reason="no_index",table="public.other"} 1`,
		`cdc_relay_retention_export_bytes_total{pipeline="orders",table="public.files"} 42`,
		`cdc_relay_retention_partitions{pipeline="orders",state="ahead",table="public.parts"} 7`,
		`cdc_relay_retention_partitions{pipeline="orders",state="held_back",table="public.parts"} 1`,
		`cdc_relay_retention_partitions_removed_total{pipeline="orders",table="public.parts"} 3`,
		`go_goroutines{pipeline="orders"}`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(w.Body.String(), `cdc_relay_retention_paused{pipeline="orders",reason="",`) || strings.Contains(w.Body.String(), `cdc_relay_retention_oldest_row_seconds{pipeline="orders",table="public.other"`) {
		t.Error("what is not so shows")
	}
	if strings.Count(w.Body.String(), "\ngo_goroutines") != 1 {
		t.Error("what is about the process is there more than once")
	}
}

// Traces are the process's: all shards share the tracer, and its metric has no label shard.
func TestTracing_IsCountedOnceInAProcess(t *testing.T) {
	tracer := tracing.New(tracing.Config{}, nil)
	tracer.Count(tracing.Sent, 3)
	all := NewShards(Options{Pipeline: "orders"}, []int{0, 1})
	all[0].WatchTracing(tracer)
	got := gather(t, all[1])
	for _, outcome := range tracing.Outcomes {
		want := 0.0
		if outcome == "sent" {
			want = 3
		}
		if n := got.value(`tracing_spans_total{outcome="` + outcome + `"}`); n != want {
			t.Errorf("%s: %v, want %v", outcome, n, want)
		}
	}
	off := New(Options{Pipeline: "orders"})
	off.WatchTracing(nil)
	if _, there := gather(t, off)[`tracing_spans_total{outcome="sent"}`]; there {
		t.Error("a relay without tracing has the metric")
	}
}
