package kafkatx

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/test/defaults"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Brokers that refuse large batches and then go away must not hold who produces for them.
func TestProduce_EndsWithItsContext(t *testing.T) {
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s := &Sink{Brokers: producer.NewBrokers(producer.Config{MaxMessageBytes: 1 << 20}, zerolog.Nop(), nil, nil)}
	s.batchBytes.Store(1)
	records := make([]record.Record, 3)
	for i := range records {
		records[i] = record.Record{Topic: "orders", Value: []byte(`{"n":1}`), Partition: record.AutoPartition}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	ended := make(chan struct{})
	answers := newOutcomes()
	go func() {
		answers.produce(ctx, s, client, newTransactionBatch(records, func(error) {}))
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it goes on waiting for the brokers")
	}
	if !answers.isBroken() {
		t.Error("the transaction could be committed without the rest")
	}
	if n := client.BufferedProduceRecords(); n != 1 {
		t.Errorf("%d records were produced, want the first batch of one", n)
	}
}

// What the sink itself does for a record must not allocate.
func TestTransactionBatch_AllocatesLessThanOnceInTenRecords(t *testing.T) {
	const records, runs = 1000, 20
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"), kgo.MaxBufferedRecords((runs+2)*records))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s := &Sink{Brokers: producer.NewBrokers(producer.Config{MaxMessageBytes: 1 << 20}, zerolog.Nop(), nil, nil)}
	batch := make([]record.Record, records)
	for i := range batch {
		batch[i] = record.Record{Topic: "orders", Key: fmt.Append(nil, i), Value: []byte(`{"n":1}`), Partition: record.AutoPartition}
	}
	answers := newOutcomes()
	batches := make([]*transactionBatch, runs+1)
	for i := range batches {
		batches[i] = newTransactionBatch(batch, func(error) {})
		batches[i].buildRecords(time.Now())
		batches[i].free() // leaves the array in the pool
	}
	next := 0
	got := testing.AllocsPerRun(runs, func() {
		answers.produce(t.Context(), s, client, batches[next])
		next++
	})
	if got > records/10 {
		t.Errorf("%.0f allocations for %d records", got, records)
	}
}

func TestTransactionalConfig_CommentsStateTheDefaults(t *testing.T) {
	k, err := New(Config{Config: producer.Config{Connection: broker.Connection{Brokers: []string{"127.0.0.1:1"}}}, CheckpointTopic: "positions"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close(t.Context()) }()
	if n := defaults.Compare(t, "sink.go", "Config", k.cfg, nil); n < 3 {
		t.Errorf("%d comments name a default", n)
	}
}

// A busy database beside a quiet outbox moves the position all the time, also while the
// producer session waits for brokers that are unreachable.
func TestProducerSession_KeepsOnePositionOfThoseThatWait(t *testing.T) {
	s := &Sink{session: newProducerSession(nil, nil, sink.Holder{})} // its goroutine takes nothing
	const positions = 1000
	s.SetPosition(sink.Position{Value: []byte("open")})
	for i := range positions {
		s.SetPosition(sink.Position{Value: []byte(strconv.Itoa(i)), Whole: true, Now: i == 7})
	}
	s.Send(t.Context(), make([]record.Record, 1), func(error) {})
	s.SetPosition(sink.Position{Value: []byte("behind"), Whole: true})
	s.SetPosition(sink.Position{Value: []byte("divided")})
	var got []string
	for _, step := range s.session.take() {
		switch {
		case step.batch != nil:
			got = append(got, "records")
		case step.position.Now:
			got = append(got, string(step.position.Value)+", now")
		default:
			got = append(got, string(step.position.Value))
		}
	}
	// A position inside a source transaction takes no other's place: what was counted of the
	// transaction before ends with that.
	want := []string{strconv.Itoa(positions-1) + ", now", "records", "behind", "divided"}
	if !slices.Equal(got, want) {
		t.Errorf("the session has to do %q, want %q", got, want)
	}
}
