package relay

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// distant listens here and gives its address behind the link.
type distant struct {
	net.Listener
	there string
}

func (l distant) Addr() net.Addr {
	a := *l.Listener.Addr().(*net.TCPAddr)
	a.IP = net.ParseIP(l.there)
	return &a
}

// longSlot is a slot that outlives its connections.
type longSlot struct {
	mu        sync.Mutex
	rows      []func() *wal.Batch
	confirmed wal.LSN
	down      atomic.Bool
	refused   atomic.Int64 // attempts while it was down
}

func (s *longSlot) insert(commit, end wal.LSN, row string) {
	s.mu.Lock()
	s.rows = append(s.rows, fixed(commit, end, 1, row))
	s.mu.Unlock()
}

func (s *longSlot) open(context.Context) (Source, error) {
	if s.down.Load() {
		s.refused.Add(1)
		return nil, &fault.Error{Kind: fault.KindRetry, Op: "connect", Err: errors.New("no route to host")}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &longSource{fakeSource: &fakeSource{server: newServer(), aborted: make(chan struct{}), fail: make(chan error, 1)}, slot: s, start: s.confirmed}, nil
}

type longSource struct {
	*fakeSource
	slot  *longSlot
	start wal.LSN
}

func (s *longSource) StartLSN() wal.LSN { return s.start }

func (s *longSource) Close(_ context.Context, confirmed wal.LSN) error {
	if s.slot.down.Load() {
		return errors.New("the connection is gone")
	}
	s.slot.mu.Lock()
	s.slot.confirmed = max(s.slot.confirmed, confirmed)
	s.slot.mu.Unlock()
	return nil
}

func (s *longSource) Run(intake context.Context, out chan<- *wal.Batch, confirmed func() wal.LSN) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for next := 0; ; {
		if s.slot.down.Load() {
			return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "read from server", Err: errors.New("connection reset")}
		}
		var b *wal.Batch
		s.slot.mu.Lock()
		s.slot.confirmed = max(s.slot.confirmed, confirmed())
		for b == nil && next < len(s.slot.rows) {
			if b = s.slot.rows[next](); b.Through <= s.start {
				b = nil
			}
			next++
		}
		s.slot.mu.Unlock()
		if b != nil {
			out <- b
			continue
		}
		select {
		case <-intake.Done():
			return nil
		case <-s.aborted:
			return nil
		case <-look.C:
		}
	}
}

// deliver runs a relay from the slot to the brokers. published waits until so many rows
// are.
func deliver(t *testing.T, cluster *kfake.Cluster) (slot *longSlot, published func(int64)) {
	t.Helper()
	routes := outboxRoutes(t)
	slot = &longSlot{confirmed: 100}
	r := New(Config{RetryMax: 100 * time.Millisecond}, Parts{Source: slot.open, Router: routes, Sink: func() (sink.Sink, error) {
		return kafka.New(producer.Config{Connection: broker.Connection{Brokers: cluster.ListenAddrs()}}, zerolog.Nop())
	}}, Events{}, zerolog.Nop())
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-result; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return slot, func(n int64) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); r.Status().EventsPublished < n; <-time.After(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d published: %+v", r.Status().EventsPublished, n, r.Status())
			}
		}
	}
}

// topic is what the topic has when so much time is over.
func topic(t *testing.T, cluster *kfake.Cluster, late time.Duration) string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("order-events"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	<-time.After(late)
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), "order-events")
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup("order-events", 0)
	var values []string
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for int64(len(values)) < end.Offset {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records are read", len(values), end.Offset)
		}
	}
	return strings.Join(values, " ")
}

// One relay whose network goes and comes back. When a connection is closed, the kernel
// still holds what was written to it and sends it when the network is back: behind what
// the next session has written by then.
func TestRelay_KeepsOrderThroughAnOutageOfItsNetwork(t *testing.T) {
	link := harness.Link(t, sandbox.LinkOptions{Delay: time.Millisecond})
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "order-events"), kfake.ListenFn(func(string, string) (net.Listener, error) {
		l, err := net.Listen("tcp", net.JoinHostPort(link.Here(), "0"))
		return distant{l, link.There()}, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	slot, published := deliver(t, cluster)
	slot.insert(110, 120, "order/a/1")
	published(1)

	// The kernel sends again after 0.2, 0.6, 1.4, 3 and 6.2 s, about.
	began := time.Now()
	link.Drop(true)
	slot.insert(130, 140, "order/a/2")
	<-time.After(1500 * time.Millisecond)
	slot.down.Store(true)
	<-time.After(2 * time.Second)
	link.Drop(false)
	slot.down.Store(false)
	published(2)
	slot.insert(150, 160, "order/a/3")
	slot.insert(170, 180, "order/a/4")
	published(4)
	t.Logf("all is acknowledged %s after the network went", time.Since(began).Round(time.Millisecond))

	if got := topic(t, cluster, time.Until(began.Add(9*time.Second))); !strings.HasSuffix(got, "2 3 4") {
		t.Errorf("the topic has %s, and 4 was committed last", got)
	}
}

// A request that was written when the connection to PostgreSQL was lost is handled by a
// slow broker when the next session has sent newer records of its key.
func TestRelay_KeepsOrderWhenABrokerIsSlowerThanAReconnect(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "order-events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	slot, published := deliver(t, cluster)
	slot.insert(110, 120, "order/a/1")
	published(1)
	var held atomic.Bool
	arrived, release := make(chan struct{}), make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if held.CompareAndSwap(false, true) {
			close(arrived)
			cluster.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	slot.insert(130, 140, "order/a/2")
	<-arrived
	slot.down.Store(true)
	for slot.refused.Load() == 0 {
		<-time.After(time.Millisecond)
	}
	slot.down.Store(false)
	slot.insert(150, 160, "order/a/3")
	published(3)
	close(release)
	slot.insert(170, 180, "order/a/4") // behind what was held
	published(4)
	if got := topic(t, cluster, 500*time.Millisecond); got != "1 2 3 4" {
		t.Errorf("the topic has %s, want 1 2 3 4", got)
	}
}
