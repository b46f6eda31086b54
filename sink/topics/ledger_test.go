package topics_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func openLedger(t *testing.T, c *kfake.Cluster) *topics.Ledger {
	t.Helper()
	at := broker.Connection{Brokers: c.ListenAddrs()}
	if _, err := topics.EnsureCheckpointTopic(t.Context(), at, topics.Creation{}, "positions", false); err != nil {
		t.Fatal(err)
	}
	l, err := topics.NewLedger(at, "positions")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func TestLedger_KeepsTheNewestOfEachKey(t *testing.T) {
	t.Parallel()
	l := openLedger(t, cluster(t))
	for range 2 { // the first time there is nothing
		found, err := l.Read(t.Context(), " for s")
		if err != nil || len(found) != 0 {
			t.Fatalf("%d values in an empty topic: %v", len(found), err)
		}
	}
	for _, w := range []struct{ key, value string }{{"a for s", "1"}, {"b for s", "2"}, {"a for s", "3"}, {"a for t", "4"}, {"b for s", ""}, {"c for s", "5"}} {
		var value []byte
		if w.value != "" {
			value = []byte(w.value)
		}
		if err := l.Write(t.Context(), w.key, value); err != nil {
			t.Fatal(err)
		}
	}
	found, err := l.Read(t.Context(), " for s")
	if err != nil {
		t.Fatal(err)
	}
	if keys := slices.Sorted(maps.Keys(found)); !slices.Equal(keys, []string{"a for s", "c for s"}) || string(found["a for s"]) != "3" {
		t.Fatalf("found %q", found)
	}
}

func TestLedger_SaysWhatIsMissing(t *testing.T) {
	c := cluster(t)
	l, err := topics.NewLedger(broker.Connection{Brokers: c.ListenAddrs()}, "positions")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = l.Read(t.Context(), "")
	e, _ := errors.AsType[*sink.Error](err)
	if e == nil || e.Class != sink.Blocked || e.Reason != fault.ReasonCheckpointTopic {
		t.Fatalf("without the topic: %v", err)
	}
}

// A broker that does not answer holds nobody longer than he waits.
func TestLedger_WriteEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	l := openLedger(t, c)
	release := make(chan struct{})
	defer close(release)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		c.SleepControl(func() { <-release })
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := l.Write(ctx, "a for s", []byte("1"))
	if e, _ := errors.AsType[*sink.Error](err); e == nil || e.Class != sink.Retry {
		t.Fatalf("from a broker that does not answer: %v", err)
	}
}

// A client that was refused a producer id keeps to that, and may have no answer for a record.
func TestLedger_HealsAfterARefusedProducerID(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	l := openLedger(t, c)
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	err := l.Write(t.Context(), "a for s", []byte("1"))
	if e, _ := errors.AsType[*sink.Error](err); e == nil || e.Class != sink.Blocked || e.Reason != "cluster_authorization_failed" {
		t.Fatalf("without a producer id: %v", err)
	}
	refused.Remove()
	if err := l.Write(t.Context(), "a for s", []byte("1")); err != nil {
		t.Errorf("once it may have one: %v", err)
	}
}

// A session that ends gives up the write under way, and then writes how far it really came.
func TestLedger_WriteIsNotHitByOneThatWasGivenUp(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	l := openLedger(t, c)
	for range 2 {
		sent := make(chan struct{})
		seen := sync.OnceFunc(func() { close(sent) })
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: 1})
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			seen()
			return nil, nil, false
		})
		given, up := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = l.Write(given, "a for s", []byte("1"))
		}()
		<-sent // and refused: the client tries it again
		up()
		<-ended
		if err := l.Write(t.Context(), "a for s", []byte("2")); err != nil {
			t.Fatalf("behind one that was given up: %v", err)
		}
		found, err := l.Read(t.Context(), " for s")
		if err != nil || string(found["a for s"]) != "2" {
			t.Fatalf("found %q, %v", found, err)
		}
	}
}

// What is committed shows behind an open transaction only when that has ended, and what
// was aborted never.
func TestLedger_CommittedWaitsForOpenTransactions(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	l := openLedger(t, c)
	if value, err := l.Committed(t.Context(), "k"); value != nil || err != nil {
		t.Fatalf("of an empty topic %q, %v", value, err)
	}
	writer := func(id string) *kgo.Client {
		client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID(id))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		return client
	}
	write := func(client *kgo.Client, value string) {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "positions", Key: []byte("k"), Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	end := func(client *kgo.Client, commit kgo.TransactionEndTry) {
		if err := client.EndTransaction(t.Context(), commit); err != nil {
			t.Fatal(err)
		}
	}
	want := func(value string) {
		t.Helper()
		if got, err := l.Committed(t.Context(), "k"); string(got) != value || err != nil {
			t.Errorf("%q, %v; want %q", got, err, value)
		}
	}
	first := writer("first")
	write(first, "1")
	end(first, kgo.TryCommit)
	want("1")

	open, second := writer("open"), writer("second")
	write(open, "never")
	write(second, "2")
	end(second, kgo.TryCommit)
	hidesWithin(t, fault.ReasonCheckpointHidden, "", func(ctx context.Context, _ time.Duration) error {
		_, err := l.Committed(ctx, "k")
		return err
	})
	end(open, kgo.TryAbort)
	want("2")
}
