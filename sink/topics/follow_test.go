package topics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
)

func produceAll(t *testing.T, k *kafka.Sink, topic string, values ...string) {
	t.Helper()
	var records []record.Record
	for _, value := range values {
		records = append(records, record.Record{Topic: topic, Key: []byte(value), Value: []byte(value), Partition: record.AutoPartition})
	}
	outcome := make(chan error, 1)
	k.Send(t.Context(), records, func(err error) { outcome <- err })
	if err := <-outcome; err != nil {
		t.Fatal(err)
	}
}

// A follower has visited everything that was there when CatchUp was called; ReadTopic
// reads the same and ends.
func TestFollower_CatchesUpWithEveryPartition(t *testing.T) {
	brokers, err := sandbox.StartKafka(sandbox.KafkaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = brokers.Close() })
	cfg := producer.Config{Connection: broker.Connection{Brokers: brokers.Addrs()}, CreateTopics: topics.Creation{Partitions: 4, ReplicationFactor: 1}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var missing *sink.Error
	if err := topics.ReadTopic(ctx, cfg.Connection, "letters", func(*topics.Message) error { return nil }); !errors.As(err, &missing) || missing.Reason != "unknown_topic" {
		t.Fatalf("a missing topic: %v", err)
	}
	early := topics.NewFollower(cfg.Connection, "letters", zerolog.Nop())
	if err := early.CatchUp(ctx, true); err == nil || !strings.Contains(err.Error(), "`cdc-relay setup` makes it") {
		t.Errorf("a missing topic that is followed: %v", err)
	}
	early.Close()
	for i, want := range []bool{true, true, false} {
		if made, err := topics.EnsureTopic(ctx, cfg.Connection, cfg.CreateTopics, "letters", i == 0); err != nil || made != want {
			t.Fatalf("step %d: missing %t, %v", i, made, err)
		}
	}
	f := topics.NewFollower(cfg.Connection, "letters", zerolog.Nop())
	defer f.Close()
	var mu sync.Mutex
	seen := map[string]bool{}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(seen) }
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, func(m *topics.Message) {
			mu.Lock()
			defer mu.Unlock()
			seen[string(m.Value)] = true
		})
	}()
	if err := f.CatchUp(ctx, true); err != nil {
		t.Fatalf("an empty topic: %v", err)
	}
	k, err := kafka.New(cfg, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close(ctx) }()
	for round := range 5 {
		var values []string
		for i := range 50 {
			values = append(values, fmt.Sprint(round*50+i))
		}
		produceAll(t, k, "letters", values...)
		if err := f.CatchUp(ctx, true); err != nil {
			t.Fatal(err)
		}
		if got := count(); got != (round+1)*50 {
			t.Fatalf("%d visited after CatchUp, want %d", got, (round+1)*50)
		}
	}
	read := 0
	if err := topics.ReadTopic(ctx, cfg.Connection, "letters", func(*topics.Message) error { read++; return nil }); err != nil || read != 250 {
		t.Fatalf("%d read, %v", read, err)
	}
	enough := errors.New("enough")
	if err := topics.ReadTopic(ctx, cfg.Connection, "letters", func(*topics.Message) error { return enough }); !errors.Is(err, enough) {
		t.Fatalf("visit's error: %v", err)
	}
	short, end := context.WithTimeout(ctx, time.Millisecond)
	defer end()
	<-short.Done()
	if err := f.CatchUp(short, true); err == nil || !strings.Contains(err.Error(), `"letters"`) {
		t.Fatalf("without time: %v", err)
	}
	cancel()
	<-ended
}

// A topic that was deleted and made again is read from its beginning, and whoever visits is
// told that what was there is gone.
func TestFollower_GoesOnWithATopicThatWasMadeAgain(t *testing.T) {
	t.Parallel()
	brokers, err := sandbox.StartKafka(sandbox.KafkaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = brokers.Close() })
	cfg := broker.Connection{Brokers: brokers.Addrs()}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	f := topics.NewFollower(cfg, "letters", zerolog.Nop())
	seen, ended := make(chan string, 10), make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, func(m *topics.Message) {
			if m == nil {
				seen <- "gone"
				return
			}
			seen <- fmt.Sprintf("%s at %d", m.Value, m.Offset)
		})
	}()
	defer func() {
		cancel()
		<-ended
		f.Close()
	}()
	for i, want := range [][]string{{"old at 0", "older at 1"}, {"gone", "new at 0"}} {
		if i > 0 {
			if err := brokers.DeleteTopic(ctx, "letters"); err != nil {
				t.Fatal(err)
			}
		}
		if err := brokers.CreateTopic(ctx, "letters", 1); err != nil {
			t.Fatal(err)
		}
		k, err := kafka.New(producer.Config{Connection: cfg}, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		produceAll(t, k, "letters", [][]string{{"old", "older"}, {"new"}}[i]...)
		if err := k.Close(ctx); err != nil {
			t.Fatal(err)
		}
		for err := errors.New("not yet"); err != nil; {
			if err = f.CatchUp(ctx, true); ctx.Err() != nil {
				t.Fatalf("round %d: %v", i, err)
			}
		}
		for _, each := range want {
			select {
			case got := <-seen:
				if got != each {
					t.Fatalf("visited %q, want %q", got, each)
				}
			default:
				t.Fatalf("round %d: caught up before %q was visited", i, each)
			}
		}
	}
}
