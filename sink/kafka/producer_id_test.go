package kafka_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
)

// given counts the records that a client was given.
type given struct{ records atomic.Int32 }

func (g *given) OnProduceRecordBuffered(*kgo.Record) { g.records.Add(1) }

func openCounting(t *testing.T, c *kfake.Cluster) (*kafka.Sink, *given) {
	t.Helper()
	g := &given{}
	cfg := producer.Config{Connection: broker.Connection{Brokers: c.ListenAddrs()}, Compression: "none"}
	k, err := kafka.New(cfg, zerolog.Nop(), func() kgo.Hook { return g })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), guardTime)
		defer cancel()
		if err := k.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return k, g
}

// A client that is refused a producer id while it loads a record's topic forgets the record.
func TestKafka_GivesNoRecordToAClientWithoutAProducerID(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	k, g := openCounting(t, c)
	var before atomic.Int32
	before.Store(-1)
	c.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
		before.Store(g.records.Load())
		return nil, nil, false
	})
	if f := sendOne(t, k, newRecord("orders", "k", "v")); f != nil {
		t.Fatal(f.Err)
	}
	if n := before.Load(); n != 0 {
		t.Errorf("the client has %d records when it asks for its producer id", n)
	}
}

func TestKafka_HaltsWhileItWaitsForAProducerID(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	k, _ := openCounting(t, c)
	asked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
		once.Do(func() { close(asked) })
		c.SleepControl(func() { <-release })
		return nil, nil, false
	})
	outcome := make(chan error, 1)
	go k.Send(t.Context(), []record.Record{newRecord("orders", "k", "v")}, func(err error) { outcome <- err })
	<-asked
	k.Halt()
	select {
	case err := <-outcome:
		if got := failures(t, err); len(got) != 1 || got[0].Class != sink.Retry || got[0].Reason != "held_back" {
			t.Errorf("the record of a sink that was halted: %v", err)
		}
	case <-time.After(guardTime):
		t.Error("done was not called")
	}
	close(release)
	k.Resume(t.Context())
	if f := sendOne(t, k, newRecord("orders", "k", "v")); f != nil {
		t.Errorf("after Resume: %v", f.Err)
	}
}
