package metrics

import (
	"github.com/cdc-relay/cdc-relay/figures"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Timings are the histograms of event_age_seconds and produce_duration_seconds as they are now.
func (m *Metrics) Timings() (ages, produce figures.Buckets) {
	return buckets(m.eventAge), buckets(m.produceTime)
}

func buckets(of prometheus.Metric) figures.Buckets {
	var seen dto.Metric
	if of.Write(&seen) != nil {
		return figures.Buckets{}
	}
	h := seen.GetHistogram()
	b := figures.Buckets{Total: h.GetSampleCount()}
	for _, one := range h.GetBucket() {
		b.Upper = append(b.Upper, one.GetUpperBound())
		b.Counts = append(b.Counts, one.GetCumulativeCount())
	}
	return b
}
