package kafkatx_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafkatx"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
)

const checkpoints = "checkpoints"

// exactly is an open Transactional with hands for a test.
type exactly struct {
	*kafkatx.Sink
	t         *testing.T
	holder    sink.Holder
	lost      chan error
	mu        sync.Mutex
	ends      []sink.Ending
	committed atomic.Int64 // the last position that was committed
}

func transactional(t *testing.T, c *kfake.Cluster, change func(*kafkatx.Config)) *exactly {
	t.Helper()
	x := &exactly{t: t, lost: make(chan error, 100)}
	cfg := kafkatx.Config{
		Config:          producer.Config{Connection: broker.Connection{Brokers: c.ListenAddrs()}, Compression: "none"},
		CheckpointTopic: checkpoints, Interval: 10 * time.Millisecond,
		Ended: func(e sink.Ending) {
			x.mu.Lock()
			x.ends = append(x.ends, e)
			x.mu.Unlock()
		},
	}
	if change != nil {
		change(&cfg)
	}
	s, err := kafkatx.New(cfg, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	x.Sink = s
	x.holder = sink.Holder{ID: "cdc-relay-1-slot", Key: "1/slot", Lost: func(err error) { x.lost <- err }}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), guardTime)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return x
}

func (x *exactly) open() string {
	x.t.Helper()
	value, err := x.tryOpen()
	if err != nil {
		x.t.Fatal(err)
	}
	return value
}

func (x *exactly) tryOpen() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), guardTime)
	defer cancel()
	value, err := x.Open(ctx, x.holder)
	return string(value), err
}

// send hands over records named by values and, unless it is zero, a position.
func (x *exactly) send(position int, whole bool, values ...string) chan error {
	done := make(chan error, 1)
	records := make([]record.Record, len(values))
	for i, v := range values {
		records[i] = newRecord("orders", "k", v)
	}
	x.Send(context.Background(), records, func(err error) { done <- err })
	if position != 0 {
		x.setPosition(position, whole, false)
	}
	return done
}

func (x *exactly) setPosition(position int, whole, now bool) {
	x.SetPosition(sink.Position{Value: fmt.Appendf(nil, "%d", position), Whole: whole, Now: now, Committed: func() { x.committed.Store(int64(position)) }})
}

func (x *exactly) endings() []sink.Ending {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.ends)
}

func awaitDone(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(guardTime):
		t.Fatal("no outcome")
		return nil
	}
}

// committed reads what a consumer of committed records sees, up to a record that is
// written behind everything.
func committed(t *testing.T, c *kfake.Cluster, topic string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guardTime)
	defer cancel()
	var all []string
	cfg := producer.Config{Connection: broker.Connection{Brokers: c.ListenAddrs()}}
	if err := topics.ReadTopic(ctx, cfg.Connection, topic, func(m *topics.Message) error {
		all = append(all, string(m.Value))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func eosCluster(t *testing.T) *kfake.Cluster {
	t.Helper()
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	if err := c.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	return c
}
