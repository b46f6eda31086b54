package metrics

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// series is one gathered registry: `name{label="value",…}` without the pipeline → metric.
type series map[string]*dto.Metric

func gather(t *testing.T, m *Metrics) series {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	all := series{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			var labels []string
			pipeline := ""
			for _, l := range metric.GetLabel() {
				if l.GetName() == "pipeline" {
					pipeline = l.GetValue()
					continue
				}
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if pipeline != "orders" {
				t.Errorf("%s: label pipeline = %q, want orders", f.GetName(), pipeline)
			}
			name := strings.TrimPrefix(f.GetName(), "cdc_relay_")
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			all[name] = metric
		}
	}
	return all
}

func (s series) value(name string) float64 {
	m, ok := s[name]
	switch {
	case !ok:
		return -1
	case m.Counter != nil:
		return m.GetCounter().GetValue()
	case m.Histogram != nil:
		return float64(m.GetHistogram().GetSampleCount())
	}
	return m.GetGauge().GetValue()
}

func (s series) expect(t *testing.T, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		if got := s.value(name); got != value {
			t.Errorf("%s = %v, want %v (-1: absent)", name, got, value)
		}
	}
}

func batchOf(at time.Time, topics ...string) (*wal.Batch, []record.Record) {
	relation := &wal.Relation{Namespace: "public", Name: "outbox"}
	txn := &wal.Txn{Time: at}
	b := &wal.Batch{Received: 1000, Transactions: 1, Foreign: 2, OtherOps: 3}
	var records []record.Record
	for _, topic := range topics {
		b.Rows = append(b.Rows, wal.Row{Txn: txn, Relation: relation})
		records = append(records, record.Record{Topic: topic})
	}
	return b, records
}

// A mapping of Debezium's EventRouter may handle more than inserts.
func TestRows_AreCountedByWhatTheyAre(t *testing.T) {
	m := New(Options{Pipeline: "orders"})
	b, _ := batchOf(time.Now(), "orders", "orders", "orders", "orders", "orders", "orders")
	for i, op := range []wal.Op{wal.Update, wal.Delete, wal.Delete, wal.Truncate, wal.Commit} {
		b.Rows[i].Change = &wal.Change{Op: op}
	}
	m.Events().BatchReceived(b)
	got := gather(t, m)
	got.expect(t, map[string]float64{
		`source_rows_total{op="insert",table="public.outbox"}`:   1,
		`source_rows_total{op="update",table="public.outbox"}`:   1,
		`source_rows_total{op="delete",table="public.outbox"}`:   2,
		`source_rows_total{op="truncate",table="public.outbox"}`: 1,
	})
	rows := 0.0
	for name := range got {
		if strings.HasPrefix(name, "source_rows_total") {
			rows += got.value(name)
		}
	}
	if rows != 5 {
		t.Errorf("%v rows, want 5: the end of a transaction is none", rows)
	}
}

func TestEvents_FeedTheCounters(t *testing.T) {
	m := New(Options{Pipeline: "orders"})
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m.now = func() time.Time { return now }
	ev := m.Events()

	b, records := batchOf(now.Add(-40*time.Millisecond), "orders", "orders", "payments", "orders")
	ev.BatchReceived(b)
	ev.RecordsAcknowledged(records[:3])
	ev.RecordsAcknowledged(records[3:])
	ev.BatchDelivered(b, records, 3*time.Millisecond)
	ahead, records := batchOf(now.Add(time.Second), "orders")
	ev.BatchReceived(ahead)
	ev.RecordsAcknowledged(records)
	ev.BatchDelivered(ahead, records, time.Millisecond)
	ev.RowRejected(fault.ReasonRoute, errors.New("no topic"))
	ev.DeadLettered(fault.ReasonRoute)
	ev.DeadLettered("parked")
	ev.ProduceRetried("not_leader")
	ev.Reconnecting("network", io.ErrUnexpectedEOF)
	ev.StateChanged(status.Starting, status.Streaming, "")

	got := gather(t, m)
	got.expect(t, map[string]float64{
		`source_received_bytes_total`:                          2000,
		`source_transactions_total`:                            2,
		`source_rows_total{op="insert",table="public.outbox"}`: 5,
		`events_skipped_total{reason="foreign_table"}`:         4,
		`events_skipped_total{reason="op"}`:                    6,
		`events_published_total{topic="orders"}`:               4,
		`events_published_total{topic="payments"}`:             1,
		`events_rejected_total{reason="route"}`:                1,
		`dead_letters_total{reason="route"}`:                   1,
		`dead_letters_total{reason="parked"}`:                  1,
		`produce_retries_total{reason="not_leader"}`:           1,
		`reconnects_total{reason="network"}`:                   1,
		`reconnects_total{reason="other"}`:                     0,
		`state_changes_total{state="streaming"}`:               1,
		`clock_skew_total`:                                     1,
		`event_age_seconds`:                                    2,
		`produce_duration_seconds`:                             2,
	})
	if sum := got["event_age_seconds"].GetHistogram().GetSampleSum(); sum != 0.04 {
		t.Errorf("sum of event_age_seconds = %v, want 0.04: an age below zero counts as zero", sum)
	}
}

func TestEvents_ABatchWithoutRowsIsNoDelivery(t *testing.T) {
	m := New(Options{Pipeline: "orders"})
	b := &wal.Batch{Received: 18, Through: 7}
	m.Events().BatchReceived(b)
	m.Events().BatchDelivered(b, nil, 0)
	gather(t, m).expect(t, map[string]float64{
		"source_received_bytes_total": 18, "produce_duration_seconds": 0, "event_age_seconds": 0,
	})
}

func TestHistograms_AreClassicAndNative(t *testing.T) {
	m := New(Options{Pipeline: "orders"})
	m.observeAge(20*time.Millisecond, "")
	h := gather(t, m)["event_age_seconds"].GetHistogram()
	if len(h.GetBucket()) != 16 {
		t.Errorf("%d classic buckets, want 16", len(h.GetBucket()))
	}
	if h.Schema == nil || len(h.GetPositiveSpan()) == 0 {
		t.Error("no native buckets")
	}
}

func TestPublished_TopicsBeyondTheCapShareALabel(t *testing.T) {
	m := New(Options{Pipeline: "orders"})
	for i := range maxTopics + 20 {
		b, records := batchOf(time.Now(), fmt.Sprintf("topic-%d", i))
		m.Events().RecordsAcknowledged(records)
		m.Events().BatchDelivered(b, records, 0)
	}
	got := gather(t, m)
	got.expect(t, map[string]float64{
		`events_published_total{topic="topic-0"}`:   1,
		`events_published_total{topic="topic-99"}`:  1,
		`events_published_total{topic="topic-100"}`: -1,
		`events_published_total{topic="__other__"}`: 20,
	})
}

func fullStatus() status.Status {
	safe, spilled := int64(5000), int64(77)
	at := time.Unix(1_700_000_000, 0)
	return status.Status{
		State: status.Blocked, Reason: "unknown_topic", Since: at, SourceConnected: true,
		SlotState: &status.Slot{Active: true, WALStatus: "extended", SafeWALBytes: &safe, SpilledBytes: &spilled},
		LSN:       status.LSNs{Server: 900, Received: 800, Published: 700, Confirmed: 600},
		LagBytes:  new(int64(300)), RetainedWALBytes: 450, LagSeconds: new(12.5),
		InFlightEvents: 3, InFlightBytes: 4096, InFlightLimitBytes: 32 << 20, OldestUnacked: new(1.5),
		LastEvent: at, LastConfirm: at, LastTick: at,
	}
}

func TestState_ExactlyOneIsSet(t *testing.T) {
	for _, state := range status.States {
		m := New(Options{Pipeline: "orders"})
		m.Handler(func() status.Status { return status.Status{State: state} })
		got := gather(t, m)
		sum := 0.0
		for _, other := range status.States {
			sum += got.value(fmt.Sprintf("state{state=%q}", other))
		}
		if sum != 1 || got.value(fmt.Sprintf("state{state=%q}", state)) != 1 {
			t.Errorf("%s: the states sum to %v, want 1 on the state itself", state, sum)
		}
	}
}

func TestGauges_ComeFromOneStatus(t *testing.T) {
	m := New(Options{Pipeline: "orders", Version: "1.2.3", Commit: "abc"})
	calls := 0
	m.Handler(func() status.Status { calls++; return fullStatus() })
	gather(t, m).expect(t, map[string]float64{
		`state_reason{reason="unknown_topic",state="blocked"}`: 1,
		`source_connected`:                     1,
		`sink_connected`:                       0,
		`leader`:                               1,
		`in_flight_events`:                     3,
		`in_flight_bytes`:                      4096,
		`in_flight_limit_bytes`:                32 << 20,
		`oldest_unacked_seconds`:               1.5,
		`lag_seconds`:                          12.5,
		`slot_lag_bytes`:                       300,
		`slot_retained_wal_bytes`:              450,
		`slot_safe_wal_bytes`:                  5000,
		`slot_spilled_bytes_total`:             77,
		`slot_wal_status{status="extended"}`:   1,
		`slot_wal_status{status="lost"}`:       0,
		`lsn{position="published"}`:            700,
		`last_confirm_timestamp_seconds`:       1_700_000_000,
		`state_since_timestamp_seconds`:        1_700_000_000,
		`state_changes_total{state="blocked"}`: 0,
	})
	if calls != 1 {
		t.Errorf("status was asked %d times in one scrape, want 1", calls)
	}
}

func TestGauges_UnknownIsAbsent(t *testing.T) {
	m := New(Options{Pipeline: "orders"})
	m.Handler(func() status.Status { return status.Status{State: status.Starting} })
	gather(t, m).expect(t, map[string]float64{
		"slot_lag_bytes": -1, "slot_retained_wal_bytes": -1, "slot_safe_wal_bytes": -1, "lag_seconds": -1, "oldest_unacked_seconds": -1,
		"last_event_timestamp_seconds": -1, `lsn{position="server"}`: -1, `slot_wal_status{status="lost"}`: -1,
		"leader": 0,
	})
}

// How long the WAL lasts is shown while a limit and a pace are known, and zero is a value.
func TestGauges_SayHowLongTheWALLasts(t *testing.T) {
	for name, c := range map[string]struct {
		seconds *float64
		want    float64
	}{"a while": {new(7200.0), 7200}, "nothing left": {new(0.0), 0}, "no limit": {nil, -1}} {
		t.Run(name, func(t *testing.T) {
			m := New(Options{Pipeline: "orders"})
			s := fullStatus()
			s.SlotState.SafeSeconds, s.SlotState.WALPace = c.seconds, 1<<20
			m.Handler(func() status.Status { return s })
			gather(t, m).expect(t, map[string]float64{"slot_safe_wal_seconds": c.want, "wal_bytes_per_second": 1 << 20})
		})
	}
}

func TestHandler_ServesGoAndProcessMetrics(t *testing.T) {
	m := New(Options{})
	w := httptest.NewRecorder()
	m.Handler(fullStatus).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`cdc_relay_state{pipeline="default",state="blocked"} 1`,
		`go_goroutines{pipeline="default"}`, `process_start_time_seconds{pipeline="default"}`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in the answer", want)
		}
	}
}

// A relay that is built again in one process (tests, demo) makes a second client.
func TestHooks_ASecondClientTakesOver(t *testing.T) {
	m := New(Options{Pipeline: "orders"})
	for range 2 {
		client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"), kgo.WithHooks(m.Hook()))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if got := gather(t, m).value("kafka_buffered_produce_bytes"); got != 0 {
			t.Errorf("kafka_buffered_produce_bytes = %v, want 0", got)
		}
	}
}

// The plugin defines its metrics anew for each client, without a lock.
func TestHooks_EachClientHasItsOwn(t *testing.T) {
	m := New(Options{})
	if m.Hook() == m.Hook() {
		t.Error("two clients share a hook")
	}
}

func TestDocumentation_ListsEveryMetricAndNothingElse(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	m := New(Options{})
	plugin := m.kafka()
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"), kgo.WithHooks(plugin))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	known := described(append(m.own, newStatusCollector(fullStatus, "", "", ""), newMaintenanceCollector(nil), tracingCollector{})...)
	fromClient := described(plugin)

	documented := map[string]bool{}
	for _, match := range regexp.MustCompile("(?m)^\\| `(cdc_relay_[a-z0-9_]+)`").FindAllStringSubmatch(string(text), -1) {
		documented[match[1]] = true
		if !known[match[1]] && !fromClient[match[1]] {
			t.Errorf("docs/metrics.md documents %s, which does not exist", match[1])
		}
	}
	for name := range known {
		if !documented[name] {
			t.Errorf("docs/metrics.md does not document %s", name)
		}
	}
}

func described(all ...prometheus.Collector) map[string]bool {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		for _, c := range all {
			c.Describe(descs)
		}
	}()
	names := map[string]bool{}
	fqName := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range descs {
		names[fqName.FindStringSubmatch(d.String())[1]] = true
	}
	return names
}

func BenchmarkBatchDelivered(b *testing.B) {
	m := New(Options{})
	topics := make([]string, 1000)
	for i := range topics {
		topics[i] = [...]string{"orders", "orders", "payments"}[i%3]
	}
	batch, records := batchOf(time.Now(), topics...)
	delivered := m.Events().BatchDelivered
	b.ReportAllocs()
	for b.Loop() {
		delivered(batch, records, time.Millisecond)
	}
}
