package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

const traced = "0af7651916cd43dd8448eb211c80319c"

func scraped(t *testing.T, m *Metrics) string {
	t.Helper()
	r, w := httptest.NewRequest(http.MethodGet, "/metrics", nil), httptest.NewRecorder()
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	m.Handler(func() status.Status { return status.Status{} }).ServeHTTP(w, r)
	return w.Body.String()
}

// A slow bucket leads to the trace of a transaction that was in it.
func TestEventAge_HasTheTraceOfSampledTransactions(t *testing.T) {
	m := New(Options{Pipeline: "orders"})
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	m.now = func() time.Time { return now }
	deliver := func(age time.Duration, parents ...string) {
		b := &wal.Batch{}
		for _, parent := range parents {
			b.Rows = append(b.Rows, wal.Row{Txn: &wal.Txn{Time: now.Add(-age)}})
			_ = parent
		}
		var records []record.Record
		for i, parent := range parents {
			records = append(records, record.Record{Row: &b.Rows[i], Headers: []record.Header{{Key: "id"}, {Key: "traceparent", Value: []byte(parent)}}})
		}
		m.Events().BatchDelivered(b, records, 0)
		now = now.Add(time.Second)
	}
	deliver(30*time.Millisecond, "00-"+traced+"-b7ad6b7169203331-00", "no traceparent")
	if text := scraped(t, m); strings.Contains(text, "trace_id") {
		t.Errorf("a transaction that nobody sampled has an exemplar: %s", text)
	}
	deliver(4*time.Second, "00-11111111111111111111111111111111-b7ad6b7169203331-00", "00-"+traced+"-b7ad6b7169203331-01")
	text := scraped(t, m)
	for line := range strings.SplitSeq(text, "\n") {
		if has := strings.Contains(line, `# {trace_id="`+traced+`"} 4`); has != strings.Contains(line, `event_age_seconds_bucket{pipeline="orders",le="5.0"}`) {
			t.Errorf("%s", line)
		}
	}
	if !strings.Contains(text, `event_age_seconds_count{pipeline="orders"} 4`) {
		t.Errorf("an observation is missing: %s", text)
	}
	now = now.Add(-time.Second + exemplarEvery/2) // soon after the last one
	deliver(400*time.Second, "00-"+traced+"-b7ad6b7169203331-01")
	if text := scraped(t, m); strings.Contains(text, "} 400") && strings.Contains(text, `le="600.0"} 5 # {`) {
		t.Errorf("exemplars have no limit: %s", text)
	}
}
