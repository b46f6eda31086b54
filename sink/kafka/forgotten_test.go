package kafka_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A real broker that forgot the producer refuses a record. It would take the one after it,
// if that were on its way.
func TestKafka_ABrokerThatForgotTheProducerTakesNothingBehindARefusedRecord(t *testing.T) {
	brokers := harness.OwnKafka(t, map[string]string{"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "100"})
	brokers.CreateTopic(t, "orders", 1, "max.message.bytes", "2000")
	written := new(writes)
	k, err := kafka.New(producer.Config{Connection: broker.Connection{Brokers: brokers.Addrs}, Compression: "none"}, zerolog.Nop(), func() kgo.Hook { return written })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	now := time.Now()
	k.SetClock(func() time.Time { return now })
	if left := deliver(t, k, []record.Record{newRecord("orders", "k", "r0")}, 1); len(left) != 0 {
		t.Fatal("the first record was not delivered")
	}
	awaitForgotten(t, brokers, "orders")
	now = now.Add(kafka.IdleTime + time.Second)

	before, outcomes := written.n.Load(), make(chan error, 2)
	done := func(err error) { outcomes <- err }
	k.Send(t.Context(), []record.Record{newRecord("orders", "k", strings.Repeat("r1", 2000))}, done)
	spin(t, "the first record is written", func() bool { return written.n.Load() > before })
	k.Send(t.Context(), []record.Record{newRecord("orders", "k", "r2")}, done)
	refused := failures(t, <-outcomes)
	if len(refused) != 1 || refused[0].Class != sink.Rejected {
		t.Errorf("the large record: %+v, want it rejected", refused)
	}
	if behind := failures(t, <-outcomes); len(behind) != 1 {
		t.Error("the record behind it counts as delivered")
	}
	var got []string
	for _, r := range brokers.Read(t, "orders") {
		got = append(got, string(r.Value))
	}
	if want := []string{"r0"}; !slices.Equal(got, want) {
		t.Errorf("the log has %.10q, want %q", got, want)
	}
}

// awaitForgotten waits until the broker knows no producer of the topic.
func awaitForgotten(t *testing.T, brokers *harness.Brokers, topic string) {
	t.Helper()
	admin := brokers.Admin(t)
	for end := time.Now().Add(guardTime); ; <-time.After(50 * time.Millisecond) {
		partitions, err := admin.ListTopics(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		known, err := admin.DescribeProducers(t.Context(), partitions.TopicsSet())
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := known[topic].Partitions[0]; ok && p.Err == nil && len(p.ActiveProducers) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the broker still knows the producer: %+v", known)
		}
	}
}
