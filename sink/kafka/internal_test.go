package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func quiet(t *testing.T) *Sink {
	t.Helper()
	k, err := New(producer.Config{Connection: broker.Connection{Brokers: []string{"127.0.0.1:1"}}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close(t.Context()) })
	return k
}

// A broker that forgot the producer takes any sequence, and so a record after a
// refused one. The caller has to send both again.
func TestKafka_ReportsARecordThatOvertookAFailedOne(t *testing.T) {
	k := quiet(t)
	records := []record.Record{{Topic: "orders"}, {Topic: "orders"}, {Topic: "orders"}}
	var outcome error
	f := k.newInFlightBatch(t.Context(), records, func(err error) { outcome = err })
	k.sends.add()
	partition := new(partitionQueue)
	for i := range f.contexts {
		f.contexts[i].seq.Store(uint64(i) + 1)
		f.contexts[i].queue.Store(partition)
	}
	k.settled(&f.kafka[0], nil)
	k.settled(&f.kafka[1], kerr.InvalidRecord)
	k.settled(&f.kafka[2], nil)
	k.countOutcomes(f, 1)

	var failed *sink.FailedError
	if !errors.As(outcome, &failed) || len(failed.Failures) != 2 {
		t.Fatalf("outcome is %v, want records 1 and 2 to have failed", outcome)
	}
	if got := failed.Failures[1]; got.Index != 2 || got.Reason != "overtaken" || got.Class != sink.Retry {
		t.Errorf("record 2: %+v", got)
	}
	if k.Overtaken() != 1 {
		t.Errorf("Overtaken is %d, want 1", k.Overtaken())
	}
	k.Resume(t.Context())
	f = k.newInFlightBatch(t.Context(), records[:1], func(err error) { outcome = err })
	k.sends.add()
	f.contexts[0].seq.Store(4)
	f.contexts[0].queue.Store(partition)
	k.settled(&f.kafka[0], nil)
	k.countOutcomes(f, 1)
	if outcome != nil {
		t.Errorf("after Resume, a record of the same partition: %v", outcome)
	}
}

// The gate waits for the outcome of what was ahead in the partition.
func TestRecordContext_IsDoneOnlyOnceTheRecordAheadHasFailed(t *testing.T) {
	k := quiet(t)
	f := k.newInFlightBatch(t.Context(), []record.Record{{Topic: "orders"}, {Topic: "orders"}}, func(error) {})
	k.sends.add()
	partition := new(partitionQueue)
	for i := range f.contexts {
		f.contexts[i].seq.Store(uint64(i) + 1)
		f.contexts[i].queue.Store(partition)
	}
	open := make(chan bool)
	go func() { open <- f.contexts[1].Done() == nil }()
	select {
	case <-open:
		t.Fatal("the gate did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	k.settled(&f.kafka[0], kerr.InvalidRecord)
	if <-open {
		t.Error("the gate let a record pass behind a failed one")
	}
	k.settled(&f.kafka[1], f.contexts[1].Err())
	k.countOutcomes(f, 1)
}

// A client with metrics waits for its last push before it closes connections.
func TestKafka_ClosesWithoutPushingMetrics(t *testing.T) {
	if off, _ := quiet(t).client.Load().OptValue(kgo.DisableClientMetrics).(bool); !off {
		t.Error("the client collects metrics for the brokers")
	}
}

// Another client is another producer, whom the brokers do not compare with the one before.
func TestKafka_AbandonSaysThatARepairReplacedTheClient(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	k, err := New(producer.Config{Connection: broker.Connection{Brokers: c.ListenAddrs()}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	for broken, fenced := range map[bool]bool{false: true, true: false} {
		if broken {
			k.noteRepair("orders", kerr.UnknownTopicID)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := k.Abandon(ctx); err != nil || got != fenced {
			t.Errorf("with a topic that was recreated (%t): fenced %t, want %t: %v", broken, got, fenced, err)
		}
	}
}
