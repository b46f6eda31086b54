package kafka_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// guardTime only ends tests that hang.
const guardTime = time.Minute

func cluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// open starts a sink without compression, so that faults can look for values in
// requests.
func open(t testing.TB, c *kfake.Cluster, change func(*producer.Config)) *kafka.Sink {
	t.Helper()
	return openGathering(t, c, kafka.GatherTime, change)
}

// openGathering opens a sink that gathers Sends for so long in a backlog.
func openGathering(t testing.TB, c *kfake.Cluster, gather time.Duration, change func(*producer.Config)) *kafka.Sink {
	t.Helper()
	cfg := producer.Config{Connection: broker.Connection{Brokers: c.ListenAddrs()}, Compression: "none"}
	if change != nil {
		change(&cfg)
	}
	k, err := kafka.NewGathering(cfg, gather, zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.Disabled))
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
	return k
}

// read returns everything in the topic, in the order of the log within each partition.
func read(t testing.TB, c *kfake.Cluster, topic string) []sinktest.Delivered {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guardTime)
	defer cancel()
	records, err := sandbox.ReadTopics(ctx, c.ListenAddrs(), []string{topic})
	if err != nil {
		t.Fatal(err)
	}
	var all []sinktest.Delivered
	for _, r := range records {
		d := sinktest.Delivered{Topic: r.Topic, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp, Partition: r.Partition}
		for _, h := range r.Headers {
			d.Headers = append(d.Headers, record.Header(h))
		}
		all = append(all, d)
	}
	return all
}

// holds reports whether a produce request has a record with the value.
func holds(value string) func(kmsg.Request) bool {
	return func(request kmsg.Request) bool {
		produce, ok := request.(*kmsg.ProduceRequest)
		if !ok {
			return false
		}
		for _, topic := range produce.Topics {
			for _, partition := range topic.Partitions {
				if bytes.Contains(partition.Records, []byte(value)) {
					return true
				}
			}
		}
		return false
	}
}

// wire is a listener whose connections can lose what the broker answers.
type wire struct {
	net.Listener
	cut *atomic.Bool
}

func (w wire) Accept() (net.Conn, error) {
	conn, err := w.Listener.Accept()
	return wireConn{conn, w.cut}, err
}

type wireConn struct {
	net.Conn
	cut *atomic.Bool
}

func (c wireConn) Write(p []byte) (int, error) {
	if c.cut.CompareAndSwap(true, false) {
		c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func suite(change func(*producer.Config)) func(t *testing.T) sinktest.Subject {
	return func(t *testing.T) sinktest.Subject {
		var cut atomic.Bool
		c := cluster(t, kfake.SeedTopics(1, "orders"), kfake.ListenFn(func(network, address string) (net.Listener, error) {
			listener, err := net.Listen(network, address)
			return wire{listener, &cut}, err
		}))
		k := open(t, c, func(cfg *producer.Config) {
			if change != nil {
				change(cfg)
			}
		})
		return sinktest.Subject{
			Sink:      k,
			Topic:     "orders",
			Delivered: func(t *testing.T) []sinktest.Delivered { return read(t, c, "orders") },
			Refuse: func(_ *testing.T, value string, class sink.Class) func() {
				code := kerr.TopicAuthorizationFailed
				if class == sink.Rejected {
					code = kerr.InvalidRecord
				}
				fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: code, Count: -1, When: holds(value)})
				return fault.Remove
			},
			Stall: func(*testing.T) func() { return stall(c) },
			LoseAck: func(*testing.T) {
				var once sync.Once
				c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
					once.Do(func() { cut.Store(true) }) // the next write is this request's answer
					return nil, nil, false
				})
			},
		}
	}
}

// stall keeps produce requests unanswered until release.
func stall(c *kfake.Cluster) (release func()) {
	released := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		c.SleepControl(func() { <-released })
		return nil, nil, false
	})
	return sync.OnceFunc(func() { close(released) })
}

func TestKafka_PassesTheSuite(t *testing.T) {
	sinktest.Exercise(t, suite(nil))
}

func TestKafka_PassesTheSuiteWithLinger(t *testing.T) {
	sinktest.Exercise(t, suite(func(cfg *producer.Config) { cfg.Linger = 5 * time.Millisecond }))
}
