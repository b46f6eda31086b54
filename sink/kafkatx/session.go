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
// failure. Its goroutine alone talks to the client; others only put calls into the
// queue, so that rows are routed while a transaction is being ended.
type producerSession struct {
	sink   *Sink
	client *client
	holder sink.Holder

	life context.Context
	stop context.CancelCauseFunc
	over chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	queue   []call
	dead    error  // nothing is taken any more
	commits uint64 // transactions with records that were committed
	wake    chan struct{}

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

// call is one call of the sink's owner.
type call struct {
	batch    *transactionBatch
	position *sink.Position
	seal     bool
	commits  uint64 // with seal: how many transactions were committed before it
	finish   func(error)
}

func newProducerSession(t *Sink, client *client, h sink.Holder) *producerSession {
	s := &producerSession{sink: t, client: client, holder: h, over: make(chan struct{}), wake: make(chan struct{}, 1), answers: newOutcomes()}
	s.life, s.stop = context.WithCancelCause(context.Background())
	return s
}

func (s *producerSession) put(c call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead != nil {
		return s.dead
	}
	c.commits = s.commits
	if !s.supersedes(&c) {
		s.queue = append(s.queue, c)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// supersedes puts a position into the place of the one that waits right before it. So a busy
// database beside a quiet outbox costs no memory, however long the brokers are unreachable.
func (s *producerSession) supersedes(c *call) bool {
	if len(s.queue) == 0 || c.position == nil || !c.position.Whole {
		return false
	}
	last := &s.queue[len(s.queue)-1]
	if last.position == nil {
		return false
	}
	c.position.Now = c.position.Now || last.position.Now
	*last = *c
	return true
}

func (s *producerSession) take() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.queue
	s.queue = nil
	return calls
}

// run does what is queued, and ends transactions when they are due.
func (s *producerSession) run() {
	defer close(s.over)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		calls := s.take()
		for len(calls) > 0 {
			err := s.do(calls[0])
			if err == nil {
				calls = calls[1:]
				continue
			}
			if calls[0].batch != nil && !slices.Contains(s.batches, calls[0].batch) {
				s.batches = append(s.batches, calls[0].batch)
			}
			s.abandon(err, calls[1:])
			return
		}
		if s.due(time.Now(), true) {
			if err := s.seal(); err != nil {
				s.abandon(err, nil)
				return
			}
			continue
		}
		timer.Reset(s.wait(time.Now()))
		select {
		case <-s.wake:
		case <-timer.C:
		case <-s.answers.broken:
			s.abandon(sink.ErrHalted, nil)
			return
		case <-s.life.Done():
			s.abandon(context.Cause(s.life), nil)
			return
		}
	}
}

func (s *producerSession) do(c call) error {
	if s.life.Err() != nil {
		return context.Cause(s.life)
	}
	switch {
	case c.batch != nil:
		return s.produce(c.batch)
	case c.position != nil:
		s.position, s.uncovered = c.position, false
		if c.position.Whole {
			s.sourceBytes = 0
		}
		if s.due(time.Now(), false) {
			return s.seal()
		}
	case c.finish != nil:
		s.finish = c.finish
		if s.uncovered || s.position != nil && !s.position.Whole {
			return errNotSealed
		}
		return s.seal()
	default:
		// What was committed since may have been enough; a caller that still cannot continue asks
		// again.
		s.mu.Lock()
		s.sealAsked = s.commits == c.commits
		s.mu.Unlock()
	}
	return nil
}

func (s *producerSession) produce(b *transactionBatch) error {
	if err := s.begin(); err != nil {
		return err
	}
	s.batches, s.uncovered = append(s.batches, b), true
	s.answers.produce(s.life, s.sink, s.client.Client, b)
	s.bytes += b.size
	s.sourceBytes += b.size
	switch {
	case s.life.Err() != nil:
		return context.Cause(s.life)
	case s.answers.isBroken():
		return sink.ErrHalted
	}
	return nil
}

func (s *producerSession) begin() error {
	if s.open {
		return nil
	}
	if err := s.client.BeginTransaction(); err != nil {
		return err
	}
	s.open, s.began = true, time.Now()
	return nil
}

// due reports whether to end the transaction. idle: nothing waits for the next one.
//
// At an idle tip a record does not wait, unless the last transaction ended less than
// an interval ago: what comes together is then committed together.
func (s *producerSession) due(now time.Time, idle bool) bool {
	switch {
	case s.position == nil || s.uncovered:
		return false
	case !s.position.Whole: // the source transaction is too large, or comes too slowly
		large := s.sink.cfg.DivideBytes > 0 && s.sourceBytes >= s.sink.cfg.DivideBytes
		return s.open && (large || s.sealAsked && idle || now.Sub(s.began) >= s.sink.cfg.Timeout/3)
	case s.position.Now:
		return true
	case len(s.batches) == 0:
		return now.Sub(s.committed) >= idlePositions
	case s.sealAsked, s.bytes >= s.sink.cfg.MaxBytes:
		return true
	}
	return now.Sub(s.committed) >= s.sink.cfg.Interval && (idle || now.Sub(s.began) >= s.sink.cfg.Interval)
}

// wait is how long nothing will be due by itself.
func (s *producerSession) wait(now time.Time) time.Duration {
	at := now.Add(time.Hour)
	switch {
	case s.position == nil || s.uncovered:
	case !s.position.Whole:
		if s.open {
			at = s.began.Add(s.sink.cfg.Timeout / 3)
		}
	case len(s.batches) == 0:
		at = s.committed.Add(idlePositions)
	default:
		at = s.committed.Add(s.sink.cfg.Interval)
	}
	return max(at.Sub(now), time.Millisecond)
}

// seal commits the transaction with the last position.
func (s *producerSession) seal() error {
	if s.position == nil {
		s.finished(nil)
		return nil
	}
	if err := s.begin(); err != nil {
		return err
	}
	rec := &kgo.Record{Topic: s.sink.cfg.CheckpointTopic, Key: []byte(s.holder.Key), Value: s.position.Value, Context: context.Background(), Timestamp: time.Now()}
	s.answers.wg.Add(1)
	s.client.Produce(context.Background(), rec, func(r *kgo.Record, err error) {
		if err != nil {
			if err = causeOf(r, err); !errors.Is(err, sink.ErrHalted) {
				err = &checkpointError{s.sink.cfg.CheckpointTopic, err}
			}
		}
		s.answers.settled(r, err)
	})
	if err := s.flush(); err != nil {
		return err
	}
	// The commit counts whatever it finds: only a transaction without a failure may
	// get this far.
	if s.answers.isBroken() {
		if err := s.answers.failures()[rec]; err != nil && !errors.Is(err, sink.ErrHalted) {
			return err
		}
		return sink.ErrHalted
	}
	if err := s.client.commit(context.Background()); err != nil {
		return &commitError{err}
	}
	s.sealed()
	return nil
}

// flush waits until everything is answered, or the first failure is.
func (s *producerSession) flush() error {
	ctx, cancel := context.WithCancel(s.life)
	defer cancel()
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		_ = s.client.Flush(ctx) // fails with ctx alone
	}()
	select {
	case <-flushed:
		return context.Cause(s.life)
	case <-s.answers.broken:
		cancel()
		<-flushed
		return nil
	}
}

// sealed reports a committed transaction and makes room for the next one.
func (s *producerSession) sealed() {
	batches, position := s.batches, s.position
	s.committed = time.Now()
	s.open, s.batches, s.answers, s.position, s.bytes = false, nil, newOutcomes(), nil, 0
	s.sourceBytes = 0
	if len(batches) > 0 {
		s.sealAsked = false
	}
	if s.sink.cfg.Ended != nil {
		s.sink.cfg.Ended(sink.Committed)
	}
	if position.Committed != nil {
		position.Committed()
	}
	for i, b := range batches {
		if i == len(batches)-1 { // before the last done: a seal that the caller asks for after an earlier one is not needed, and does not count
			s.mu.Lock()
			s.commits++
			s.mu.Unlock()
		}
		b.free()
		b.done(nil)
	}
	s.finished(nil)
}

func (s *producerSession) finished(err error) {
	if f := s.finish; f != nil {
		s.finish = nil
		f(err)
	}
}

// An abort is waited for this long: abortTimeout, or endTimeout once the session was told to end. Who
// opens next aborts what is left.
const (
	abortTimeout = 5 * time.Second
	endTimeout   = time.Second
)

// abandon ends the session: it aborts what is open and fails everything.
func (s *producerSession) abandon(cause error, rest []call) {
	s.mu.Lock()
	s.dead = sink.ErrHalted
	if errors.Is(cause, sink.ErrClosed) {
		s.dead = sink.ErrClosed
	}
	rest = append(rest, s.queue...)
	s.queue = nil
	s.mu.Unlock()

	age := time.Since(s.began)
	limit := abortTimeout
	if s.life.Err() != nil {
		limit = endTimeout
	}
	began := s.open
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	if s.open {
		_ = s.client.AbortBufferedRecords(ctx) // what is left then fails with the client
		if ctx.Err() == nil {
			_ = s.client.EndTransaction(ctx, kgo.TryAbort)
		}
	}
	cancel()
	s.client.Close()
	s.answers.wg.Wait()
	failed := s.answers.failures()
	s.repair(failed)

	describe := func(topic string, err error) sink.Failure { return s.sink.failure(topic, err, age) }
	if began && s.sink.cfg.Ended != nil {
		if _, ok := errors.AsType[*commitError](cause); ok && !notAttempted(cause) {
			s.sink.cfg.Ended(sink.Unknown)
		} else {
			s.sink.cfg.Ended(sink.Aborted)
		}
	}
	for _, b := range s.batches {
		b.fail(failed, cause, describe)
	}
	for _, c := range rest {
		switch {
		case c.batch != nil:
			c.batch.fail(nil, s.dead, describe)
		case c.finish != nil:
			s.finish = c.finish
		}
	}
	s.batches = nil
	s.finished(cause)
	if lost := s.holder.Lost; lost != nil && !errors.Is(cause, sink.ErrClosed) && (!errors.Is(cause, sink.ErrHalted) || len(failed) > 0) {
		lost(s.sink.explain(cause, failed, age))
	}
}

// repair makes the topics that are missing, where that is wanted, and looks at those
// that were deleted.
func (s *producerSession) repair(failed map[*kgo.Record]error) {
	missing, recreated := map[string]struct{}{}, map[string]struct{}{}
	for r, err := range failed {
		switch {
		case r.Topic == s.sink.cfg.CheckpointTopic:
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			missing[r.Topic] = struct{}{}
		case errors.Is(err, kerr.UnknownTopicID):
			recreated[r.Topic] = struct{}{}
		}
	}
	s.sink.Topics.Repair(s.life, s.sink.plain, missing, recreated)
}

// end ends the goroutine and waits for that.
func (s *producerSession) end(ctx context.Context, cause error) error {
	s.stop(cause)
	select {
	case <-s.over:
		return nil
	case <-ctx.Done():
	}
	s.client.Close() // ends what it still waits for
	select {
	case <-s.over:
		return nil
	case <-time.After(endTimeout):
		return fmt.Errorf("close kafka client: %w", context.Cause(ctx))
	}
}
