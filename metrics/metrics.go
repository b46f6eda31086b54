// Package metrics turns relay.Events and status.Status into Prometheus metrics.
//
// It owns one registry and every name in it; nothing is registered globally, so
// two relays of one process do not meet. Counters and histograms are fed by the
// relay's events; gauges are read from one Status snapshot at each scrape, so
// they always agree with each other and with /api/v1/status.
//
// Labels are bounded: by the configuration (table), by the code (reason, state,
// status, position) or by a cap (topic). No key, event id, position or error
// text ever becomes a label. docs/metrics.md lists every name; a test compares.
package metrics

import (
	"errors"
	"net/http"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

const namespace = "cdc_relay"

// Options is what the labels need to know. The zero value is usable.
type Options struct {
	Pipeline string // label `pipeline` of every metric; defaults to "default"
	Version  string // for build_info
	Commit   string
}

// Metrics is one registry with everything in it. Its methods are safe for
// concurrent use. Create with New.
type Metrics struct {
	options  Options
	registry *prometheus.Registry
	labelled prometheus.Registerer  // the registry, with the labels pipeline and shard on everything
	process  prometheus.Registerer  // the registry, with the label pipeline
	own      []prometheus.Collector // all of ours except kafka's, for the test of the documentation

	receivedBytes prometheus.Counter
	transactions  prometheus.Counter
	skippedOp     prometheus.Counter
	skippedTable  prometheus.Counter
	clockSkew     prometheus.Counter
	eventAge      prometheus.Histogram
	produceTime   prometheus.Histogram

	rows       *counters              // inserts, by schema.table
	rowsByOp   *prometheus.CounterVec // the same metric, for rows that are no inserts
	published  *counters              // by topic, capped
	rejected   *prometheus.CounterVec
	letters    *prometheus.CounterVec
	retried    *prometheus.CounterVec
	endings    *prometheus.CounterVec
	reconnects *prometheus.CounterVec
	changes    *prometheus.CounterVec
	schemas    *prometheus.CounterVec

	exemplified atomic.Int64 // when the last exemplar was looked for, in nanoseconds

	now func() time.Time
}

// New builds the registry.
func New(options Options) *Metrics {
	if options.Pipeline == "" {
		options.Pipeline = "default"
	}
	registry := prometheus.NewRegistry()
	process := aboutProcess(options, registry)
	return newMetrics(options, registry, process, process)
}

// NewShards builds one registry for the numbered shards of a process. Each has
// everything of its own, with the label `shard`, except what is about the process.
func NewShards(options Options, shards []int) []*Metrics {
	if options.Pipeline == "" {
		options.Pipeline = "default"
	}
	registry := prometheus.NewRegistry()
	process := aboutProcess(options, registry)
	all := make([]*Metrics, len(shards))
	for i, shard := range shards {
		all[i] = newMetrics(options, registry, process, prometheus.WrapRegistererWith(prometheus.Labels{"shard": strconv.Itoa(shard)}, process))
	}
	return all
}

// aboutProcess registers what there is once in a process, and returns the registerer
// for the rest.
func aboutProcess(options Options, registry *prometheus.Registry) prometheus.Registerer {
	labelled := prometheus.WrapRegistererWith(prometheus.Labels{"pipeline": options.Pipeline}, registry)
	labelled.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return labelled
}

func newMetrics(options Options, registry *prometheus.Registry, process, labelled prometheus.Registerer) *Metrics {
	m := &Metrics{options: options, registry: registry, process: process, labelled: labelled, now: time.Now}
	m.defineCounters()
	m.defineHistograms()
	m.labelled.MustRegister(m.own...)
	return m
}

func (m *Metrics) defineCounters() {
	m.receivedBytes = m.counter("source_received_bytes_total", "Bytes of the replication stream.")
	m.transactions = m.counter("source_transactions_total", "Commits seen on the replication stream.")
	m.clockSkew = m.counter("clock_skew_total", "Ages that came out negative because the clocks of PostgreSQL and this host differ; counted as 0.")

	m.rowsByOp = m.counterVec("source_rows_total", "Rows of configured tables received, before routing.", "table", "op")
	m.rows = newCounters(0, func(table string) prometheus.Counter { return m.rowsByOp.WithLabelValues(table, "insert") })
	published := m.counterVec("events_published_total", "Records acknowledged by the brokers.", "topic")
	m.published = newCounters(maxTopics, func(topic string) prometheus.Counter { return published.WithLabelValues(topic) })

	skipped := m.counterVec("events_skipped_total", "Changes that are not events: updates and deletes (op), tables that are not configured (foreign_table).", "reason")
	m.skippedOp = skipped.WithLabelValues("op")
	m.skippedTable = skipped.WithLabelValues("foreign_table")

	m.rejected = m.counterVec("events_rejected_total", "Rows that cannot be delivered as they are; each row once, however often it is tried.", "reason")
	m.letters = m.counterVec("dead_letters_total", "Rows that went to the dead-letter topic and were acknowledged there.", "reason")
	m.retried = m.counterVec("produce_retries_total", "Attempts that failed and are repeated: of a record sent alone, or of a Kafka transaction without a rejected record.", "reason")
	m.endings = m.counterVec("kafka_transactions_total", "Kafka transactions of exactly-once, by how they ended.", "outcome")
	m.reconnects = m.counterVec("reconnects_total", "Sessions that failed and failed attempts at one, a standby's polling aside.", "reason")
	m.schemas = m.counterVec("schema_lookups_total", "Questions to the schema registry: ok, or the reason of the failure.", "outcome")
	m.changes = m.counterVec("state_changes_total", "Changes of state, by the state entered.", "state")

	// A series that appears with its first increment hides that increment from
	// rate() and increase(); these exist from the start.
	for _, reason := range []string{fault.ReasonNetwork, fault.ReasonTimeout, fault.ReasonSlotInUse, fault.ReasonAuth, fault.ReasonServerShutdown, "other"} {
		m.reconnects.WithLabelValues(reason)
	}
	for _, outcome := range []string{"ok", fault.ReasonRegistryUnreachable, fault.ReasonRegistryRefused, fault.ReasonRegistryAnswer, fault.ReasonUnknownSubject, fault.ReasonSchemaUnusable} {
		m.schemas.WithLabelValues(outcome)
	}
	for _, outcome := range []string{"commit", "abort", "unknown"} {
		m.endings.WithLabelValues(outcome)
	}
	for _, state := range status.States {
		m.changes.WithLabelValues(string(state))
	}
}

func (m *Metrics) defineHistograms() {
	m.eventAge = m.histogram("event_age_seconds",
		"From commit in PostgreSQL to the brokers' acknowledgement; one observation for each transaction in a delivered batch.",
		.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
	m.produceTime = m.histogram("produce_duration_seconds",
		"From a batch's hand-over to the Kafka client to its last acknowledgement.",
		.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30)
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	m.own = append(m.own, c)
	return c
}

func (m *Metrics) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.own = append(m.own, c)
	return c
}

// histogram has classic buckets for every scraper and native ones for those
// that ask for them.
func (m *Metrics) histogram(name, help string, buckets ...float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help,
		Buckets:                         buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	})
	m.own = append(m.own, h)
	return h
}

// Hook makes the hook of one Kafka client. The registry has the metrics of the newest client. One
// hook for several clients would be a data race: the plugin defines its metrics anew for each.
func (m *Metrics) Hook() kgo.Hook { return m.kafka() }

func (m *Metrics) kafka() *kprom.Metrics {
	return kprom.NewMetrics(namespace,
		kprom.Subsystem("kafka"),
		kprom.Registry(replacing{m.labelled, m.registry}),
		// By node, not by topic: the client knows no cap on topics, and
		// events_published_total has them.
		kprom.FetchAndProduceDetail(kprom.ByNode, kprom.Batches, kprom.Records, kprom.CompressedBytes, kprom.UncompressedBytes),
		kprom.Histograms(kprom.RequestDurationE2E, kprom.RequestThrottled),
	)
}

// Handler serves the metrics; status is called once for each scrape. Call it
// once: the last status given wins.
func (m *Metrics) Handler(status func() status.Status) http.Handler {
	m.Watch(status)
	return m.Registry()
}

// Watch has status asked once for each scrape. The last status given wins.
func (m *Metrics) Watch(status func() status.Status) {
	gauges := newStatusCollector(status, m.options.Version, m.options.Commit, runtime.Version())
	replacing{m.labelled, m.registry}.MustRegister(gauges)
}

// Registry serves everything in the registry, of all shards.
func (m *Metrics) Registry() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		// A collector that fails must not take the others' metrics away.
		ErrorHandling:     promhttp.ContinueOnError,
		EnableOpenMetrics: true,
	})
}

// replacing is a registerer where the newest collector of a name wins. The Kafka
// plugin registers when a client is made and panics on a name that is taken,
// which a second client of one process would be.
type replacing struct {
	prometheus.Registerer
	prometheus.Gatherer
}

func (r replacing) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		err := r.Register(c)
		if taken, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
			r.Unregister(taken.ExistingCollector)
			err = r.Register(c)
		}
		if err != nil {
			panic("metrics: register collector: " + err.Error()) //nolint:forbidigo // two definitions of ours contradict each other
		}
	}
}
