package kafkatx

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Sink produces in Kafka transactions, each with the position after its
// records: both become visible, to consumers that read what is committed, or
// neither. It promises less than kafka.Sink about failure, and needs less care for
// it: a transaction of which anything fails is aborted, and with it ends the
// producer session. What nobody sees has no order.
//
//  1. Open begins a producer session: it shuts out whoever had the same transactional id, and
//     reads what the last committed transaction said. Only the holder of the slot may
//     call it.
//  2. Send and SetPosition take records and the positions after them, in the order of the
//     stream. A transaction ends at such a position and nowhere else.
//  3. done(nil) means committed. Anything else is a *FailedError with every record of
//     its Send, and from then on nothing is taken until Open. Some of what failed may
//     be committed all the same, when the brokers did not say what happened to the last
//     transaction: only Open knows.
//
// One goroutine calls Open, Send, SetPosition, Seal, Finish and FindRejected.
type Sink struct {
	*producer.Brokers

	cfg   Config
	log   zerolog.Logger
	plain *kgo.Client // is given no record: it asks the brokers, and makes topics

	// batchBytes, if not zero, is how many bytes are produced before waiting for their
	// answers: a topic may take less at once than kafka.max_message_bytes says.
	batchBytes      atomic.Int64
	refusedTogether int // how often no record was refused alone; the owner's

	mu      sync.Mutex
	session *producerSession // nil before Open
	closed  bool
}

var (
	_ sink.Sink         = (*Sink)(nil)
	_ sink.Pinger       = (*Sink)(nil)
	_ sink.LetterKeeper = (*Sink)(nil)
	_ sink.Incidents    = (*Sink)(nil)
	_ sink.Refuser      = (*Sink)(nil)
)

// Config is what transactions need beside the brokers.
type Config struct {
	producer.Config

	CheckpointTopic string // compacted, of one partition

	// Interval is the minimum time between commits; a record waits at most that long, and
	// not at all after a quiet while. Defaults to 100ms.
	Interval time.Duration

	// Timeout is the age at which brokers abort an open transaction.
	// Defaults to 30s.
	Timeout time.Duration

	// MaxBytes ends a transaction before its interval, at the next position that leaves no
	// source transaction open. The relay sets it; for tests it defaults to 8 MiB.
	MaxBytes int

	// DivideBytes ends a transaction at a position inside a source transaction of which it
	// holds so much. Zero leaves that to Seal.
	DivideBytes int

	// Ended, if set, is called with the outcome of each transaction ended, on a goroutine of the sink.
	Ended func(sink.Ending)
}

// idlePositions is how often a position is committed that has no records.
const idlePositions = time.Second

const (
	defaultInterval = 100 * time.Millisecond
	defaultTimeout  = 30 * time.Second
	defaultMaxBytes = 8 << 20
)

// New returns a sink that is not open. It checks the configuration and
// connects to nothing; Ready does. hooks make those of each client.
func New(cfg Config, log zerolog.Logger, hooks ...func() kgo.Hook) (*Sink, error) {
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	switch {
	case cfg.CheckpointTopic == "":
		return nil, errors.New("configure kafka: no checkpoint topic given")
	case cfg.Interval < 0 || cfg.Interval > cfg.Timeout/3:
		return nil, fmt.Errorf("configure kafka: commit interval of %s is not between 0 and %s", cfg.Interval, cfg.Timeout/3)
	}
	var err error
	if cfg.Config, err = cfg.WithDefaults(); err != nil {
		return nil, err
	}
	t := &Sink{cfg: cfg, log: log}
	t.Brokers = producer.NewBrokers(cfg.Config, log, hooks, func() *kgo.Client { return t.plain })
	opts, err := t.Options()
	if err != nil {
		return nil, err
	}
	if t.plain, err = kgo.NewClient(opts...); err != nil {
		return nil, fmt.Errorf("configure kafka client: %w", err)
	}
	return t, nil
}

// Send gives records to the present transaction.
func (t *Sink) Send(_ context.Context, records []record.Record, done func(error)) {
	if len(records) == 0 {
		done(nil)
		return
	}
	b := newTransactionBatch(records, done)
	if err := t.put(call{batch: b}); err != nil {
		b.fail(nil, err, t.Failure)
	}
}

// SetPosition gives the position that the stream has after everything that was sent.
func (t *Sink) SetPosition(p sink.Position) { _ = t.put(call{position: &p}) }

// Seal ends the transaction at the last position, even inside a source transaction: the
// caller cannot continue before something is committed. DivideBytes spares it that.
func (t *Sink) Seal() { _ = t.put(call{seal: true}) }

// Finish ends what can be ended: the stream is over. done is called with nil when
// everything that was sent is committed, and the last position with it. Records after
// the last position, or of an open source transaction, fail.
func (t *Sink) Finish(done func(error)) {
	if err := t.put(call{finish: done}); err != nil {
		done(err)
	}
}

// Refuses returns the failure of a record that our own limits refuse.
func (t *Sink) Refuses(r *record.Record) *sink.Failure {
	_, err := t.cfg.Check(r)
	if err == nil {
		return nil
	}
	f := t.failure(r.Topic, err, 0)
	return &f
}

func (t *Sink) put(c call) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return sink.ErrClosed
	case t.session == nil:
		return sink.ErrHalted
	}
	return t.session.put(c)
}

// Resume does nothing: Open is what a failure needs.
func (t *Sink) Resume(context.Context) {}

// Halt does nothing: whoever takes over fences this producer, and what it has not
// committed nobody sees.
func (t *Sink) Halt() {}

// Ready asks the brokers whether they take us, and for the checkpoint topic. The
// error is a *sink.Error.
func (t *Sink) Ready(ctx context.Context) error {
	if err := t.refuseClosed(); err != nil {
		return err
	}
	if err := t.Brokers.Ready(ctx); err != nil {
		return err
	}
	return topics.VerifyCheckpointTopic(ctx, kadm.NewClient(t.plain), t.cfg.CheckpointTopic)
}

// Overtaken is always zero: what is overtaken is not committed.
func (t *Sink) Overtaken() int64 { return 0 }

// Close aborts the open transaction, fails what is not committed and closes the
// connections, waiting at most until ctx ends.
func (t *Sink) Close(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	last := t.session
	t.session = nil
	t.mu.Unlock()
	var err error
	if last != nil {
		err = last.end(ctx, sink.ErrClosed)
	}
	return errors.Join(err, t.closePlain(ctx))
}

// closePlain waits for the client's connections, at most until ctx ends.
func (t *Sink) closePlain(ctx context.Context) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		t.plain.Close()
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close kafka client: %w", context.Cause(ctx))
	}
}
