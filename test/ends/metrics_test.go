package ends

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// events counts what a consumer does, for Prometheus.
func events(registry *prometheus.Registry) kafkainbox.Events {
	handled := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "inbox_events_total"}, []string{"topic", "outcome"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "inbox_round_seconds"}, []string{"topic"})
	blocked := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "inbox_blocked_partitions"}, []string{"topic"})
	registry.MustRegister(handled, took, blocked)
	return kafkainbox.Events{
		Round: func(r kafkainbox.Round) {
			handled.WithLabelValues(r.Topic, "handled").Add(float64(r.Handled))
			handled.WithLabelValues(r.Topic, "duplicate").Add(float64(r.Duplicates))
			took.WithLabelValues(r.Topic).Observe(r.Took.Seconds())
		},
		DeadLetter: func(e *kafkainbox.RecordError) { handled.WithLabelValues(e.Topic, "dead").Inc() },
		Blocked:    func(e *kafkainbox.RecordError) { blocked.WithLabelValues(e.Topic).Inc() },
		Unblocked:  func(topic string, _ int32) { blocked.WithLabelValues(topic).Dec() },
	}
}

func TestEvents_AreMetrics(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	cfg, registry := s.config(), prometheus.NewRegistry()
	cfg.Events = events(registry)
	cfg.DeadLetterTopic = s.topic + "-dead-letters"
	s.brokers.CreateTopic(t, cfg.DeadLetterTopic, 1)
	s.produce(t, 20, 3)
	s.repeat(t, 20)
	s.send(t, []*kgo.Record{{Value: []byte("without a key")}})
	m := s.start(t, cfg)
	s.awaitAll(t)
	s.awaitCommitted(t)
	m.stop(t)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			if metric.Counter != nil {
				got[label(metric, "outcome")] += metric.Counter.GetValue()
			}
		}
	}
	if got["handled"] != 20 || got["duplicate"] != 20 || got["dead"] != 1 {
		t.Errorf("%v", got)
	}
}

func label(metric *dto.Metric, name string) string {
	for _, l := range metric.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
