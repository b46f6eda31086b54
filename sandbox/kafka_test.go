package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

func brokers(t *testing.T, options sandbox.KafkaOptions) *sandbox.Kafka {
	t.Helper()
	k, err := sandbox.StartKafka(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

func producer(t *testing.T, k *sandbox.Kafka, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.Addrs()...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func read(t *testing.T, k *sandbox.Kafka, topics ...string) []*kgo.Record {
	t.Helper()
	records, err := sandbox.ReadTopics(t.Context(), k.Addrs(), topics)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func TestReadTopics_ReadsEveryPartitionToItsEnd(t *testing.T) {
	k := brokers(t, sandbox.KafkaOptions{Brokers: 3, Topics: map[string]int32{"a": 4, "empty": 2}})
	client := producer(t, k)
	for i := range 500 {
		client.Produce(t.Context(), &kgo.Record{Topic: "a", Key: fmt.Append(nil, i), Value: []byte("v")}, nil)
	}
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(read(t, k, "a", "empty", "never-made")); got != 500 {
		t.Errorf("records = %d, want 500", got)
	}
}

func TestReadCommitted_LeavesOutWhatIsAbortedAndWhatIsOpen(t *testing.T) {
	k := brokers(t, sandbox.KafkaOptions{Topics: map[string]int32{"a": 1}})
	for id, end := range map[string]kgo.TransactionEndTry{"aborts": kgo.TryAbort, "commits": kgo.TryCommit} {
		client := producer(t, k, kgo.TransactionalID(id))
		produceInTransaction(t, client, id)
		if err := client.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	produceInTransaction(t, producer(t, k, kgo.TransactionalID("open")), "open")
	records, err := sandbox.ReadCommitted(t.Context(), k.Addrs(), []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 1 || string(records[0].Value) != "commits" {
		t.Errorf("got %d records", len(records))
	}
	if got := len(read(t, k, "a")); got != 3 {
		t.Errorf("%d records are in the topic, want 3", got)
	}
}

func produceInTransaction(t *testing.T, client *kgo.Client, value string) {
	t.Helper()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "a", Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestKafka_TakenAwayThenReturnedKeepsRecords(t *testing.T) {
	k := brokers(t, sandbox.KafkaOptions{Topics: map[string]int32{"a": 1}})
	client := producer(t, k, kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }))
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "a", Value: []byte("1")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	k.TakeAway(0)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx); err == nil {
		t.Error("the brokers answer although they were taken away")
	}
	written := make(chan error, 1)
	client.Produce(t.Context(), &kgo.Record{Topic: "a", Value: []byte("2")}, func(_ *kgo.Record, err error) { written <- err })
	select {
	case err := <-written:
		t.Errorf("written while away: %v", err)
	default:
	}
	k.Return()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if got := read(t, k, "a"); len(got) != 2 || string(got[1].Value) != "2" {
		t.Errorf("records after return = %d, want 2", len(got))
	}
}

func TestKafka_TakeAwayEndsByItself(t *testing.T) {
	k := brokers(t, sandbox.KafkaOptions{})
	const d = 30 * time.Millisecond
	began := time.Now()
	k.TakeAway(d)
	if !k.Away() && time.Since(began) < d {
		t.Error("not away")
	}
	eventually(t, "the brokers are back", func() bool { return !k.Away() })
}

func TestKafka_FailsProduceByName(t *testing.T) {
	k := brokers(t, sandbox.KafkaOptions{Topics: map[string]int32{"a": 1, "b": 1}})
	client := producer(t, k, kgo.RecordRetries(0))
	heal := k.FailProduce("a", kerr.MessageTooLarge, -1)
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "a"}).FirstErr(); !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("topic a: %v, want MESSAGE_TOO_LARGE", err)
	}
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "b"}).FirstErr(); err != nil {
		t.Errorf("topic b: %v", err)
	}
	heal()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "a"}).FirstErr(); err != nil {
		t.Errorf("topic a after healing: %v", err)
	}
}

func TestKafka_LostAnswersAreStored(t *testing.T) {
	k := brokers(t, sandbox.KafkaOptions{Topics: map[string]int32{"a": 1}})
	client := producer(t, k, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()))
	k.LoseProduceAnswers("a", 1)
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "a"}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := len(read(t, k, "a")); got != 2 {
		t.Errorf("records = %d, want 2: the one whose answer was lost and its retry", got)
	}
}

func TestKafka_HeldProduceIsNotStoredUntilReleased(t *testing.T) {
	k := brokers(t, sandbox.KafkaOptions{Topics: map[string]int32{"a": 1}})
	client := producer(t, k)
	release := k.HoldProduce()
	written := make(chan error, 1)
	client.Produce(t.Context(), &kgo.Record{Topic: "a"}, func(_ *kgo.Record, err error) { written <- err })
	if got := len(read(t, k, "a")); got != 0 {
		t.Errorf("records while held = %d", got)
	}
	release()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if got := len(read(t, k, "a")); got != 1 {
		t.Errorf("records after release = %d, want 1", got)
	}
}

func TestTail_ShowsRecordsOfTopicsMadeLater(t *testing.T) {
	k := brokers(t, sandbox.KafkaOptions{})
	tail, err := sandbox.NewTail(k.Addrs(), `shop\..*`)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	if err := k.CreateTopic(t.Context(), "shop.orders", 3); err != nil {
		t.Fatal(err)
	}
	client := producer(t, k)
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "shop.orders", Value: []byte("hello")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	records, err := tail.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if string(records[0].Value) != "hello" {
		t.Errorf("first record = %q", records[0].Value)
	}
}
