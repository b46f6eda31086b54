package topics_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
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
// told that what was there is gone. Before Kafka 3.1 fetches have no id of the topic, and before
// 2.8 topics have none: the new topic may be shorter, as long, or longer.
func TestFollower_GoesOnWithATopicThatWasMadeAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		most  *kversion.Versions
		again []string
	}{
		"today":                {nil, []string{"new"}},
		"fetches without ids":  {kversion.V3_0_0(), []string{"new", "newer", "newest"}},
		"shorter without ids":  {kversion.V2_7_0(), []string{"new"}},
		"as long without ids":  {kversion.V2_7_0(), []string{"new", "newer"}},
		"longer without ids":   {kversion.V2_7_0(), []string{"new", "newer", "newest"}},
		"the oldest supported": {kversion.V2_1_0(), []string{"new", "newer", "newest"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opts []kfake.Opt
			if tt.most != nil {
				opts = append(opts, kfake.MaxVersions(tt.most))
			}
			goesOnWithATopicThatWasMadeAgain(t, cluster(t, opts...), tt.again)
		})
	}
}

func goesOnWithATopicThatWasMadeAgain(t *testing.T, c *kfake.Cluster, again []string) {
	t.Helper()
	cfg := broker.Connection{Brokers: c.ListenAddrs()}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	f := topics.NewFollower(cfg, "letters", zerolog.Nop())
	seen, ended := make(chan string, 20), make(chan struct{})
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
	for i, values := range [][]string{{"old", "older"}, again} {
		if i > 0 {
			if err := c.DeleteTopic("letters"); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.CreateTopic("letters", 1, nil); err != nil {
			t.Fatal(err)
		}
		k, err := kafka.New(producer.Config{Connection: cfg}, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		produceAll(t, k, "letters", values...)
		if err := k.Close(ctx); err != nil {
			t.Fatal(err)
		}
		for err := errors.New("not yet"); err != nil; {
			if err = f.CatchUp(ctx, true); ctx.Err() != nil {
				t.Fatalf("round %d: %v", i, err)
			}
		}
		var want, got []string
		if i > 0 {
			want = append(want, "gone")
		}
		for offset, value := range values {
			want = append(want, fmt.Sprintf("%s at %d", value, offset))
		}
		for len(seen) > 0 {
			// It may meet the new topic twice, before it has read anything of it.
			if each := <-seen; each != "gone" || !slices.Equal(got, []string{"gone"}) {
				got = append(got, each)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: caught up, and visited %q, want %q", i, got, want)
		}
	}
}

// Where topics have no ids each CatchUp looks at the last record of each partition. A broker answers the fetches
// of a connection one after the other, and holds those of an idle topic.
func TestFollower_CatchesUpWithManyPartitionsWithoutIDs(t *testing.T) {
	t.Parallel()
	const partitions = 200
	c := cluster(t, kfake.MaxVersions(kversion.V2_7_0()), kfake.SeedTopics(partitions, "letters"))
	writer := client(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for partition := range int32(partitions) {
		if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: "letters", Partition: partition, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	f, visited := follow(t, c, "letters")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // the second has all to look at
		if err := f.CatchUp(ctx, true); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(visited()); n != partitions {
		t.Errorf("%d records were visited, want %d", n, partitions)
	}
}
