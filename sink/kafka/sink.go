package kafka

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Sink is the sink that produces to Kafka. doc.go says how it keeps order.
// Any goroutine may call its methods, but for Send, Resume, SetBacklog and Abandon.
type Sink struct {
	*producer.Brokers

	cfg   producer.Config
	log   zerolog.Logger
	sends outstanding
	conns conns

	batches   sync.Pool
	onSettled func(*kgo.Record, error) // settled, as a value that is made once

	// client is replaced by repair alone, at a time when nothing is buffered.
	client atomic.Pointer[client]

	// halted stops Send; aborting also closes the gate, so that nothing buffered
	// is written any more. Both end with Resume.
	halted   atomic.Bool
	aborting atomic.Bool
	closed   atomic.Bool
	round    atomic.Uint64 // counts Resumes, from 1

	gathered   gathered
	gatherTime time.Duration

	awaiting atomic.Bool   // produce waits for a producer id, for topics to be loaded or for an outcome
	placed   chan struct{} // one token: a record got a partition or an outcome, or the sink halted
	waking   waking        // guarded by gathered.mu
	now      func() time.Time

	life context.Context // ends with Close
	end  context.CancelFunc

	mu      sync.Mutex
	aborted chan struct{} // closed when abort and repair are done; nil when none was needed
	broken  repairs

	overtaken atomic.Int64
}

var (
	_ sink.Sink         = (*Sink)(nil)
	_ sink.Pinger       = (*Sink)(nil)
	_ sink.LetterKeeper = (*Sink)(nil)
	_ sink.Incidents    = (*Sink)(nil)
)

// client is one franz-go client and what was learnt through it.
type client struct {
	*kgo.Client
	partitioner *queuePartitioner
	hasID       bool // it has a producer id; guarded by the sink's gathered.mu
}

// New returns a sink for the brokers of cfg. It checks the configuration
// and connects to nothing; Ready does. hooks make those of each client.
func New(cfg producer.Config, log zerolog.Logger, hooks ...func() kgo.Hook) (*Sink, error) {
	return newSink(cfg, gatherTime, log, hooks...)
}

func newSink(cfg producer.Config, gatherTime time.Duration, log zerolog.Logger, hooks ...func() kgo.Hook) (*Sink, error) {
	cfg, err := cfg.WithDefaults()
	if err != nil {
		return nil, err
	}
	k := &Sink{cfg: cfg, gatherTime: gatherTime, log: log, placed: make(chan struct{}, 1), now: time.Now}
	k.life, k.end = context.WithCancel(context.Background())
	k.Brokers = producer.NewBrokers(cfg, log, hooks, func() *kgo.Client { return k.client.Load().Client })
	k.round.Store(1)
	k.batches.New = func() any { return &inFlightBatch{sink: k} }
	k.onSettled = k.settled
	c, err := k.connect()
	if err != nil {
		k.end()
		return nil, err
	}
	k.client.Store(c)
	return k, nil
}

func (k *Sink) connect() (*client, error) {
	p := newQueuePartitioner(k)
	opts, err := k.Options()
	if err != nil {
		return nil, err
	}
	c, err := kgo.NewClient(append(opts, kgo.Dialer(k.dial), kgo.RecordPartitioner(p), kgo.WithHooks(p))...)
	if err != nil {
		return nil, fmt.Errorf("configure kafka client: %w", err)
	}
	return &client{Client: c, partitioner: p}, nil
}

// Resume takes records again. It waits for the abort of what was buffered when
// the sink halted, and for the repair that followed; both end with Close. If ctx ends first,
// the sink stays halted.
func (k *Sink) Resume(ctx context.Context) {
	k.mu.Lock()
	aborted := k.aborted
	k.mu.Unlock()
	if aborted != nil {
		select {
		case <-aborted:
		case <-ctx.Done():
			return
		}
	}
	k.mu.Lock()
	k.aborted = nil
	k.mu.Unlock()
	k.round.Add(1)
	k.aborting.Store(false)
	k.mu.Lock()
	k.halted.Store(k.closed.Load())
	k.mu.Unlock()
}

// Halt closes the gate: nothing that the client has not written is written any more.
func (k *Sink) Halt() { k.halt(true) }

// Ready asks a broker for metadata, which connects and authenticates, and looks at the
// dead-letter topic. The error is a *sink.Error.
func (k *Sink) Ready(ctx context.Context) error {
	if k.closed.Load() {
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonClosed, Err: sink.ErrClosed}
	}
	return k.Brokers.Ready(ctx)
}

// Overtaken counts records that became durable before an earlier failed record
// of their partition, and were therefore reported as failed.
func (k *Sink) Overtaken() int64 { return k.overtaken.Load() }

// Close fails everything that is not durable and closes the connections, whose
// undelivered bytes are discarded (dial). It waits until every done was called, at most
// until ctx ends.
func (k *Sink) Close(ctx context.Context) error {
	k.mu.Lock()
	k.closed.Store(true)
	k.halted.Store(true)
	aborted := k.aborted
	k.mu.Unlock()
	k.end()

	finished := make(chan struct{})
	go func() {
		defer close(finished)
		k.client.Load().Close()
		k.releaseGathered() // which fails
		if aborted != nil {
			<-aborted
		}
	}()
	for _, wait := range []<-chan struct{}{finished, k.sends.empty()} {
		select {
		case <-wait:
		case <-ctx.Done():
			return fmt.Errorf("close kafka client: %w", context.Cause(ctx))
		}
	}
	return nil
}
