package relay

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// slowCommit has brokers take their time to end a transaction. Nothing else takes any
// in virtual time: it stands still while there is something to read from a connection.
type slowCommit time.Duration

func (s slowCommit) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == kmsg.EndTxn.Int16() {
		<-time.After(time.Duration(s))
	}
}

// commits is how long each row took from the source to its commit.
type commits struct {
	mu   sync.Mutex
	sent map[wal.LSN]time.Time
	took []time.Duration
}

func (c *commits) delivered(b *wal.Batch, _ []record.Record, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range b.Rows {
		c.took = append(c.took, time.Since(c.sent[b.Rows[i].Txn.Commit]))
	}
}

func (c *commits) all() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]time.Duration(nil), c.took...)
}

// A row at the tip is committed at once, and one under load after relay.commit_interval
// at the latest, beside what commits take: its own, and the one that was under way when
// it came.
func TestExactlyOnce_ARowWaitsNoLongerThanTheCommitInterval(t *testing.T) {
	const interval, commit = 100 * time.Millisecond, 20 * time.Millisecond
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "order-events"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	if err := cluster.CreateTopic("checkpoints", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	brokers := cluster.ListenAddrs() // it belongs to no bubble
	synctest.Test(t, func(t *testing.T) {
		routes := outboxRoutes(t)
		c := &commits{sent: map[wal.LSN]time.Time{}}
		server := newServer()
		server.origin = wal.Origin{SystemID: "7", Timeline: 1}
		cfg := Config{Guarantee: ExactlyOnce, CheckpointTopic: "checkpoints", Kafka: producer.Config{Connection: broker.Connection{Brokers: brokers}, Compression: "none"}}.WithDefaults()
		cfg.Replication.Slot = "slot"
		ev := Events{Events: delivery.Events{BatchDelivered: c.delivered}}
		to, err := OpenSink(cfg, ev, zerolog.Nop(), []func() kgo.Hook{func() kgo.Hook { return slowCommit(commit) }})
		if err != nil {
			t.Fatal(err)
		}
		r := New(cfg, Parts{Source: server.open, Router: routes, Sink: func() (sink.Sink, error) { return to, nil }}, ev, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- r.Run(ctx) }()
		defer func() {
			r.Abort()
			cancel()
		}()
		at := wal.LSN(100)
		row := func() {
			at += 10
			c.mu.Lock()
			c.sent[at-5] = time.Now()
			c.mu.Unlock()
			server.more <- fixed(at-5, at, 1, fmt.Sprintf("order/k%d/%d", at%7, at))
		}
		pass(10 * time.Second)
		for range 5 { // lone ones
			row()
			pass(3 * time.Second)
		}
		lone := c.all()
		if len(lone) != 5 {
			t.Fatalf("%d of 5 lone rows are committed: %+v", len(lone), r.Status())
		}
		for _, took := range lone {
			if took > commit+5*time.Millisecond {
				t.Errorf("a lone row is committed after %s", took)
			}
		}
		const rows = 1000
		for range rows { // as a stream
			row()
			pass(7 * time.Millisecond)
		}
		pass(3 * time.Second)
		stream := c.all()[len(lone):]
		if len(stream) != rows {
			t.Fatalf("%d of %d rows are committed", len(stream), rows)
		}
		var longest, sum time.Duration
		for _, took := range stream {
			longest, sum = max(longest, took), sum+took
		}
		if longest > interval+2*commit+5*time.Millisecond {
			t.Errorf("a row under load is committed after %s", longest)
		}
		if sum/rows < interval/4 { // else nothing was committed together
			t.Errorf("rows under load are committed after %s", sum/rows)
		}
		t.Logf("lone rows %v; under load %s at most, %s on average", lone, longest, sum/rows)
		cancel()
		if err := <-result; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}
