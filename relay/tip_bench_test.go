package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkTip is the Kafka sink at the tip of the log: single rows at a steady rate, over
// few and over very many partitions, in front of brokers of another process. One operation
// is three seconds. cpu-% is of one core; the times are from Send to the acknowledgement.
func BenchmarkTip(b *testing.B) {
	for _, c := range []struct{ topics, partitions, rate int }{{4, 4, 1000}, {1000, 4, 1000}, {4, 4, 5000}} {
		b.Run(fmt.Sprintf("topics=%d/partitions=%d/rate=%d", c.topics, c.partitions, c.rate), func(b *testing.B) {
			var d benchDrain
			k, err := kafka.New(producer.Config{Connection: broker.Connection{Brokers: d.startBrokers(b, c.topics, c.partitions)}}, zerolog.Nop(), func() kgo.Hook { return &d })
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = k.Close(context.Background()) })
			t := tip{sink: k, topics: c.topics}
			for i := range c.topics { // each is loaded, and has connections
				t.send(b, i)
			}
			t.wait.Wait()
			n, every := 3*c.rate, time.Second/time.Duration(c.rate)
			t.took = nil
			d.batches.Store(0)
			d.requests.Store(0)
			b.ResetTimer()
			before := cpuTime(b)
			for range b.N {
				next := time.Now()
				for range n {
					time.Sleep(time.Until(next)) //nolint:forbidigo // the rate is the point
					next = next.Add(every)
					t.send(b, rand.IntN(c.topics))
				}
				t.wait.Wait()
			}
			used, elapsed := cpuTime(b)-before, b.Elapsed()
			slices.Sort(t.took)
			b.ReportMetric(100*used.Seconds()/elapsed.Seconds(), "cpu-%")
			b.ReportMetric(float64(t.took[len(t.took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(t.took[len(t.took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(d.requests.Load())/elapsed.Seconds(), "requests/s")
			b.ReportMetric(0, "ns/op") // it is the rate's
		})
	}
}

// tip sends one record at a time and keeps how long each took.
type tip struct {
	sink   *kafka.Sink
	topics int
	wait   sync.WaitGroup

	mu   sync.Mutex
	took []time.Duration
}

func (t *tip) send(tb testing.TB, topic int) {
	key := rand.Uint64()
	records := []record.Record{{
		Topic: fmt.Sprintf("bench%d-events", topic), Key: fmt.Append(nil, key), Value: fmt.Appendf(nil, `{"n": %d, "pad": "%0220d"}`, key, key),
		Partition: record.AutoPartition, Headers: []record.Header{{Key: "id", Value: fmt.Append(nil, key)}},
	}}
	began := time.Now()
	t.wait.Add(1)
	t.sink.Send(context.Background(), records, func(err error) {
		if err != nil {
			tb.Error(err)
		}
		t.mu.Lock()
		t.took = append(t.took, time.Since(began))
		t.mu.Unlock()
		t.wait.Done()
	})
}
