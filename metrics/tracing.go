package metrics

import (
	"github.com/cdc-relay/cdc-relay/tracing"
	"github.com/prometheus/client_golang/prometheus"
)

var spansDesc = prometheus.NewDesc(prometheus.BuildFQName(namespace, "tracing", "spans_total"), "Spans of traced rows, by outcome; a row has two. invalid_parent: rows with a malformed traceparent.", []string{"outcome"}, nil)

// tracingCollector reads the totals for each scrape. They are the process's, and have no shard.
type tracingCollector struct{ tracer *tracing.Tracer }

func (c tracingCollector) Describe(out chan<- *prometheus.Desc) { out <- spansDesc }

func (c tracingCollector) Collect(out chan<- prometheus.Metric) {
	for i, n := range c.tracer.Counts() {
		out <- prometheus.MustNewConstMetric(spansDesc, prometheus.CounterValue, float64(n), tracing.Outcomes[i])
	}
}

// WatchTracing has the tracer of the process asked once for each scrape; nil: there is none. The last
// one given wins.
func (m *Metrics) WatchTracing(tracer *tracing.Tracer) {
	if tracer != nil {
		replacing{m.process, m.registry}.MustRegister(tracingCollector{tracer})
	}
}
