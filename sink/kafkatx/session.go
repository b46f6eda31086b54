package kafkatx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// producerSession is the life of one transactional client, from the fence to its first
// failure. Its goroutine alone talks to the client; others only put steps into the
// queue, so that rows are routed while a transaction is being ended.
type producerSession struct {
	t      *Sink
	client *client
	holder sink.Holder

	life context.Context
	stop context.CancelCauseFunc
	over chan struct{} // closed when the goroutine has ended

	mu    sync.Mutex
	queue []step
	dead  error // nothing is taken any more
	seals uint64
	wake  chan struct{}

	// The following are the goroutine's.
	open        bool // a transaction is begun
	began       time.Time
	batches     []*transactionBatch
	answers     *outcomes
	position    *sink.Position // the last one; nil before the first
	uncovered   bool           // records were sent after position
	bytes       int
	sourceBytes int  // of them, those of the source transaction that is not read to its end
	sealAsked   bool // Seal was called, and nothing was committed since
	finish      func(error)
	committed   time.Time
}

// step is one call of the sink's owner.
type step struct {
	batch    *transactionBatch
	position *sink.Position
	seal     bool
	seals    uint64 // with seal: how many transactions were committed before it
	finish   func(error)
}

func newProducerSession(t *Sink, client *client, h sink.Holder) *producerSession {
	n := &producerSession{t: t, client: client, holder: h, over: make(chan struct{}), wake: make(chan struct{}, 1), answers: newOutcomes()}
	n.life, n.stop = context.WithCancelCause(context.Background())
	return n
}

func (n *producerSession) put(s step) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead != nil {
		return n.dead
	}
	s.seals = n.seals
	if !n.supersedes(&s) {
		n.queue = append(n.queue, s)
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
	return nil
}

// supersedes puts a position into the place of the one that waits right before it. So a busy
// database beside a quiet outbox costs no memory, however long the brokers are unreachable.
func (n *producerSession) supersedes(s *step) bool {
	if len(n.queue) == 0 || s.position == nil || !s.position.Whole {
		return false
	}
	last := &n.queue[len(n.queue)-1]
	if last.position == nil {
		return false
	}
	s.position.Now = s.position.Now || last.position.Now
	*last = *s
	return true
}

func (n *producerSession) take() []step {
	n.mu.Lock()
	defer n.mu.Unlock()
	steps := n.queue
	n.queue = nil
	return steps
}

// run does what is queued, and ends transactions when they are due.
func (n *producerSession) run() {
	defer close(n.over)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		steps := n.take()
		for len(steps) > 0 {
			err := n.do(steps[0])
			if err == nil {
				steps = steps[1:]
				continue
			}
			if steps[0].batch != nil && !slices.Contains(n.batches, steps[0].batch) {
				n.batches = append(n.batches, steps[0].batch)
			}
			n.abandon(err, steps[1:])
			return
		}
		if n.due(time.Now(), true) {
			if err := n.seal(); err != nil {
				n.abandon(err, nil)
				return
			}
			continue
		}
		timer.Reset(n.wait(time.Now()))
		select {
		case <-n.wake:
		case <-timer.C:
		case <-n.answers.broken:
			n.abandon(sink.ErrHalted, nil)
			return
		case <-n.life.Done():
			n.abandon(context.Cause(n.life), nil)
			return
		}
	}
}

func (n *producerSession) do(s step) error {
	if n.life.Err() != nil {
		return context.Cause(n.life)
	}
	switch {
	case s.batch != nil:
		return n.produce(s.batch)
	case s.position != nil:
		n.position, n.uncovered = s.position, false
		if s.position.Whole {
			n.sourceBytes = 0
		}
		if n.due(time.Now(), false) {
			return n.seal()
		}
	case s.finish != nil:
		n.finish = s.finish
		if n.uncovered || n.position != nil && !n.position.Whole {
			return errNotSealed
		}
		return n.seal()
	default:
		// What was committed since may have been enough; a caller that still cannot continue asks
		// again.
		n.mu.Lock()
		n.sealAsked = n.seals == s.seals
		n.mu.Unlock()
	}
	return nil
}

func (n *producerSession) produce(p *transactionBatch) error {
	if err := n.begin(); err != nil {
		return err
	}
	n.batches, n.uncovered = append(n.batches, p), true
	n.answers.produce(n.life, n.t, n.client.Client, p)
	n.bytes += p.size
	n.sourceBytes += p.size
	switch {
	case n.life.Err() != nil:
		return context.Cause(n.life)
	case n.answers.isBroken():
		return sink.ErrHalted
	}
	return nil
}

func (n *producerSession) begin() error {
	if n.open {
		return nil
	}
	if err := n.client.BeginTransaction(); err != nil {
		return err
	}
	n.open, n.began = true, time.Now()
	return nil
}

// due reports whether to end the transaction. idle: nothing waits for the next one.
//
// At an idle tip a record does not wait, unless the last transaction ended less than
// an interval ago: what comes together is then committed together.
func (n *producerSession) due(now time.Time, idle bool) bool {
	switch {
	case n.position == nil || n.uncovered:
		return false
	case !n.position.Whole: // the source transaction is too large, or comes too slowly
		large := n.t.cfg.DivideBytes > 0 && n.sourceBytes >= n.t.cfg.DivideBytes
		return n.open && (large || n.sealAsked && idle || now.Sub(n.began) >= n.t.cfg.Timeout/3)
	case n.position.Now:
		return true
	case len(n.batches) == 0:
		return now.Sub(n.committed) >= idlePositions
	case n.sealAsked, n.bytes >= n.t.cfg.MaxBytes:
		return true
	}
	return now.Sub(n.committed) >= n.t.cfg.Interval && (idle || now.Sub(n.began) >= n.t.cfg.Interval)
}

// wait is how long nothing will be due by itself.
func (n *producerSession) wait(now time.Time) time.Duration {
	at := now.Add(time.Hour)
	switch {
	case n.position == nil || n.uncovered:
	case !n.position.Whole:
		if n.open {
			at = n.began.Add(n.t.cfg.Timeout / 3)
		}
	case len(n.batches) == 0:
		at = n.committed.Add(idlePositions)
	default:
		at = n.committed.Add(n.t.cfg.Interval)
	}
	return max(at.Sub(now), time.Millisecond)
}

// seal commits the transaction with the last position.
func (n *producerSession) seal() error {
	if n.position == nil {
		n.finished(nil)
		return nil
	}
	if err := n.begin(); err != nil {
		return err
	}
	rec := &kgo.Record{Topic: n.t.cfg.CheckpointTopic, Key: []byte(n.holder.Key), Value: n.position.Value, Context: context.Background(), Timestamp: time.Now()}
	n.answers.wg.Add(1)
	n.client.Produce(context.Background(), rec, func(r *kgo.Record, err error) {
		if err != nil {
			if err = causeOf(r, err); !errors.Is(err, sink.ErrHalted) {
				err = &checkpointError{n.t.cfg.CheckpointTopic, err}
			}
		}
		n.answers.settled(r, err)
	})
	if err := n.flush(); err != nil {
		return err
	}
	// The commit counts whatever it finds: only a transaction without a failure may
	// get this far.
	if n.answers.isBroken() {
		if err := n.answers.failures()[rec]; err != nil && !errors.Is(err, sink.ErrHalted) {
			return err
		}
		return sink.ErrHalted
	}
	if err := n.client.commit(context.Background()); err != nil {
		return &commitError{err}
	}
	n.sealed()
	return nil
}

// flush waits until everything is answered, or the first failure is.
func (n *producerSession) flush() error {
	ctx, cancel := context.WithCancel(n.life)
	defer cancel()
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		_ = n.client.Flush(ctx) // fails with ctx alone
	}()
	select {
	case <-flushed:
		return context.Cause(n.life)
	case <-n.answers.broken:
		cancel()
		<-flushed
		return nil
	}
}

// sealed reports a committed transaction and makes room for the next one.
func (n *producerSession) sealed() {
	batches, m := n.batches, n.position
	n.committed = time.Now()
	n.open, n.batches, n.answers, n.position, n.bytes = false, nil, newOutcomes(), nil, 0
	n.sourceBytes = 0
	if len(batches) > 0 {
		n.sealAsked = false
	}
	if n.t.cfg.Ended != nil {
		n.t.cfg.Ended(sink.Committed)
	}
	if m.Committed != nil {
		m.Committed()
	}
	for i, p := range batches {
		if i == len(batches)-1 { // before the last done: a seal that the caller asks for after an earlier one is not needed, and does not count
			n.mu.Lock()
			n.seals++
			n.mu.Unlock()
		}
		p.free()
		p.done(nil)
	}
	n.finished(nil)
}

func (n *producerSession) finished(err error) {
	if f := n.finish; f != nil {
		n.finish = nil
		f(err)
	}
}

// Aborting is waited for this long, after end was called for endTimeout; who opens next aborts what
// is left.
const (
	abortTimeout = 5 * time.Second
	endTimeout   = time.Second
)

// abandon ends the session: it aborts what is open and fails everything.
func (n *producerSession) abandon(cause error, rest []step) {
	n.mu.Lock()
	n.dead = sink.ErrHalted
	if errors.Is(cause, sink.ErrClosed) {
		n.dead = sink.ErrClosed
	}
	rest = append(rest, n.queue...)
	n.queue = nil
	n.mu.Unlock()

	age := time.Since(n.began)
	limit := abortTimeout
	if n.life.Err() != nil {
		limit = endTimeout
	}
	began := n.open
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	if n.open {
		_ = n.client.AbortBufferedRecords(ctx) // what is left then fails with the client
		if ctx.Err() == nil {
			_ = n.client.EndTransaction(ctx, kgo.TryAbort)
		}
	}
	cancel()
	n.client.Close()
	n.answers.wg.Wait()
	failed := n.answers.failures()
	n.repair(failed)

	describe := func(topic string, err error) sink.Failure { return n.t.failure(topic, err, age) }
	if began && n.t.cfg.Ended != nil {
		if _, ok := errors.AsType[*commitError](cause); ok && !notAttempted(cause) {
			n.t.cfg.Ended(sink.Unknown)
		} else {
			n.t.cfg.Ended(sink.Aborted)
		}
	}
	for _, p := range n.batches {
		p.fail(failed, cause, describe)
	}
	for _, s := range rest {
		switch {
		case s.batch != nil:
			s.batch.fail(nil, n.dead, describe)
		case s.finish != nil:
			n.finish = s.finish
		}
	}
	n.batches = nil
	n.finished(cause)
	if lost := n.holder.Lost; lost != nil && !errors.Is(cause, sink.ErrClosed) && (!errors.Is(cause, sink.ErrHalted) || len(failed) > 0) {
		lost(n.t.explain(cause, failed, age))
	}
}

// repair makes the topics that are missing, where that is wanted, and looks at those
// that were deleted.
func (n *producerSession) repair(failed map[*kgo.Record]error) {
	missing, recreated := map[string]struct{}{}, map[string]struct{}{}
	for r, err := range failed {
		switch {
		case r.Topic == n.t.cfg.CheckpointTopic:
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			missing[r.Topic] = struct{}{}
		case errors.Is(err, kerr.UnknownTopicID):
			recreated[r.Topic] = struct{}{}
		}
	}
	n.t.Topics.Repair(n.life, n.t.plain, missing, recreated)
}

// end ends the goroutine and waits for that.
func (n *producerSession) end(ctx context.Context, cause error) error {
	n.stop(cause)
	select {
	case <-n.over:
		return nil
	case <-ctx.Done():
	}
	n.client.Close() // ends what it still waits for
	select {
	case <-n.over:
		return nil
	case <-time.After(endTimeout):
		return fmt.Errorf("close kafka client: %w", context.Cause(ctx))
	}
}
