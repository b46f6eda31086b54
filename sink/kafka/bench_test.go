package kafka_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/twmb/franz-go/pkg/kfake"
)

// benchmarkSend sends batches of 1000 records of 300 bytes and keeps as many
// under way as some 24 MiB hold. One operation is one record.
func benchmarkSend(b *testing.B, s sink.Sink) {
	const each, most = 1000, 64
	records := make([]record.Record, each)
	for i := range records {
		records[i] = record.Record{
			Topic: "orders", Key: fmt.Append(nil, "key-", i), Value: fmt.Appendf(nil, `{"n": %d, "pad": "%0280d"}`, i, i), Partition: record.AutoPartition,
			Headers: []record.Header{{Key: "id", Value: fmt.Append(nil, i)}, {Key: "eventType", Value: []byte("created")}},
		}
	}
	var wg sync.WaitGroup
	under := make(chan struct{}, most)
	done := func(err error) {
		if err != nil {
			b.Error(err)
		}
		<-under
		wg.Done()
	}
	send := func() {
		wg.Add(1)
		under <- struct{}{}
		s.Send(context.Background(), records, done)
	}
	for range 20 { // topic, connections and pools
		send()
	}
	wg.Wait()
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += each {
		send()
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkKafka_Send(b *testing.B) {
	for _, compression := range []string{"none", "snappy", "lz4"} {
		b.Run(compression, func(b *testing.B) {
			c := cluster(b, kfake.SeedTopics(6, "orders"), kfake.BlackholeProduce())
			benchmarkSend(b, open(b, c, func(cfg *producer.Config) {
				cfg.Compression = compression
			}))
		})
	}
}

func BenchmarkDiscard_Send(b *testing.B) { benchmarkSend(b, &sinktest.Discard{}) }
