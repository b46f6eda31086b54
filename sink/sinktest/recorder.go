package sinktest

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Delivered is a copy of one durable record.
type Delivered struct {
	Topic     string
	Key       []byte
	Value     []byte
	Headers   []record.Header
	Timestamp time.Time
	Partition int32

	// Commit and Ordinal are the row's, zero for a record without one.
	Commit  wal.LSN
	Ordinal uint64
}

// Verdict is what happens to one record.
type Verdict struct {
	// Failure, when set, is reported; its Index is filled in.
	Failure *sink.Failure

	// Durable makes the record durable although it is reported as failed: its
	// acknowledgement was lost.
	Durable bool
}

// Fail is the verdict of a record that is not durable.
func Fail(class sink.Class, reason string, err error) Verdict {
	return Verdict{Failure: &sink.Failure{Class: class, Reason: reason, Err: err}}
}

// Recorder keeps durable records in memory. It acknowledges before Send returns,
// unless Hold, Delay or Room say otherwise. The zero value is ready. All methods
// may be called from any goroutine, except that Send and Resume have one caller,
// as with every Sink. done runs without a lock held, on the goroutine that
// brought the acknowledgement about: that of Send, Ack, Release or Close, or a
// timer's.
type Recorder struct {
	mu        sync.Mutex
	decide    func(*record.Record) Verdict
	delay     func() time.Duration
	scatter   bool
	room      int // records waiting at most; 0: no limit
	held      bool
	credit    int // records that may be acknowledged although held
	written   bool
	flights   []*batch
	waiting   int           // records in flights
	roomy     chan struct{} // closed when waiting shrinks
	delivered []Delivered
	tries     int
	sends     int
	halted    bool
	halts     int
	closed    bool
	unreached error
	unready   error
}

var _ sink.Sink = (*Recorder)(nil)

type batch struct {
	records  []record.Record
	done     func(error)
	next     int
	due      bool
	failures []sink.Failure
}

// Decide sets what happens to each record at its turn, nil delivers all. decide
// runs once for each try of a record that is not held back, under the lock: it
// must not call the Recorder.
func (r *Recorder) Decide(decide func(*record.Record) Verdict) {
	r.mu.Lock()
	r.decide = decide
	r.mu.Unlock()
}

// Delay makes every later Send wait for its acknowledgement, in order.
func (r *Recorder) Delay(delay time.Duration) { r.delays(func() time.Duration { return delay }) }

func (r *Recorder) delays(delay func() time.Duration) {
	r.mu.Lock()
	r.delay = delay
	r.mu.Unlock()
}

// Scatter makes records with other keys durable that were handed over after a
// failed one, as happens when they lie on other partitions.
func (r *Recorder) Scatter(on bool) {
	r.mu.Lock()
	r.scatter = on
	r.mu.Unlock()
}

// Room bounds the records that wait for an acknowledgement; a larger Send is
// admitted alone. 0 removes the bound.
func (r *Recorder) Room(records int) {
	r.mu.Lock()
	r.room = records
	r.wake()
	r.mu.Unlock()
}

// Hold keeps acknowledgements back until Ack or Release.
func (r *Recorder) Hold() {
	r.mu.Lock()
	r.held, r.credit = true, 0
	r.mu.Unlock()
}

// Written makes what waits count as written to the brokers, so that Halt leaves it
// to its answer.
func (r *Recorder) Written(on bool) {
	r.mu.Lock()
	r.written = on
	r.mu.Unlock()
}

// overhead is about what kafka.Sink and its client make of a record, in bytes.
const overhead = 280

// Overhead is that of a sink with a client.
func (r *Recorder) Overhead(n int) int { return n * overhead }

// Halt fails what waits, unless it counts as written.
func (r *Recorder) Halt() {
	r.mu.Lock()
	var finished []*batch
	if r.written {
		r.halted = true
		r.halts++
	} else {
		finished = r.halt()
	}
	r.mu.Unlock()
	finish(finished)
}

// Ack decides the next n held records, fewer when fewer wait.
func (r *Recorder) Ack(n int) {
	r.mu.Lock()
	r.credit += n
	finished := r.decideInOrder()
	r.credit = 0
	r.mu.Unlock()
	finish(finished)
}

// Release ends Hold and decides everything held.
func (r *Recorder) Release() {
	r.mu.Lock()
	r.held = false
	finished := r.decideInOrder()
	r.mu.Unlock()
	finish(finished)
}

// SetReachable sets what Reachable returns, SetReady what Ready returns.
func (r *Recorder) SetReachable(err error) {
	r.mu.Lock()
	r.unreached = err
	r.mu.Unlock()
}

// SetReady sets what Ready returns.
func (r *Recorder) SetReady(err error) {
	r.mu.Lock()
	r.unready = err
	r.mu.Unlock()
}

// Delivered returns the durable records in the order in which they became so.
func (r *Recorder) Delivered() []Delivered {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Delivered(nil), r.delivered...)
}

// Counts says how many records are durable, how many wait, how many tries were
// decided, how many Sends came, and how often the sink halted.
type Counts struct{ Delivered, Waiting, Tries, Sends, Halts int }

// Counts is a consistent snapshot.
func (r *Recorder) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Counts{len(r.delivered), r.waiting, r.tries, r.sends, r.halts}
}

// Send queues the records for their verdicts.
func (r *Recorder) Send(ctx context.Context, records []record.Record, done func(error)) {
	r.mu.Lock()
	r.sends++
	for r.room > 0 && r.waiting > 0 && r.waiting+len(records) > r.room && !r.halted && !r.closed {
		if r.roomy == nil {
			r.roomy = make(chan struct{})
		}
		roomy := r.roomy
		r.mu.Unlock()
		select {
		case <-roomy:
			r.mu.Lock()
		case <-ctx.Done():
			r.mu.Lock()
			finished := r.halt()
			r.mu.Unlock()
			done(failAll(records, context.Cause(ctx), "no_room"))
			finish(finished)
			return
		}
	}
	if r.closed {
		r.mu.Unlock()
		done(failAll(records, sink.ErrClosed, "closed"))
		return
	}
	if r.halted {
		r.mu.Unlock()
		done(failAll(records, sink.ErrHalted, fault.ReasonHeldBack))
		return
	}
	f := &batch{records: records, done: done, due: true}
	r.flights = append(r.flights, f)
	r.waiting += len(records)
	if r.delay != nil {
		if wait := r.delay(); wait > 0 {
			f.due = false
			time.AfterFunc(wait, func() { r.mature(f) })
		}
	}
	finished := r.decideInOrder()
	r.mu.Unlock()
	finish(finished)
}

func (r *Recorder) mature(f *batch) {
	r.mu.Lock()
	f.due = true
	finished := r.decideInOrder()
	r.mu.Unlock()
	finish(finished)
}

// Resume takes records again. It panics while an acknowledgement is owed, which
// no caller may do.
func (r *Recorder) Resume(context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting > 0 {
		panic("sinktest: Resume while records are in flight") //nolint:forbidigo // the caller broke the contract
	}
	r.halted = false
}

// Reachable returns what SetReachable was given.
func (r *Recorder) Reachable() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unreached
}

// Ready returns what SetReady was given.
func (r *Recorder) Ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unready
}

// Close fails what is held.
func (r *Recorder) Close(context.Context) error {
	r.mu.Lock()
	r.closed = true
	finished := r.failWaiting(sink.ErrClosed, "closed")
	r.wake()
	r.mu.Unlock()
	finish(finished)
	return nil
}

// decideInOrder decides records in order, as far as it may, and returns the flights
// that are finished.
func (r *Recorder) decideInOrder() (finished []*batch) {
	for len(r.flights) > 0 && r.flights[0].due {
		f := r.flights[0]
		for f.next < len(f.records) {
			if r.held && r.credit == 0 {
				return finished
			}
			if r.held {
				r.credit--
			}
			if failed := r.try(f); failed {
				return append(finished, r.halt()...)
			}
		}
		r.flights = r.flights[1:]
		r.wake()
		finished = append(finished, f)
	}
	return finished
}

func (r *Recorder) try(f *batch) (failed bool) {
	record := &f.records[f.next]
	index := f.next
	f.next++
	r.waiting--
	r.tries++
	var v Verdict
	if r.decide != nil {
		v = r.decide(record)
	}
	if v.Failure == nil {
		r.store(record)
		return false
	}
	if v.Durable {
		r.store(record)
	}
	failure := *v.Failure
	failure.Index = index
	f.failures = append(f.failures, failure)
	return true
}

// halt is the end of everything handed over: what waits after the failed record
// fails too, or, scattered, becomes durable when its key has not failed.
func (r *Recorder) halt() []*batch {
	r.halted = true
	r.halts++
	return r.failWaiting(sink.ErrHalted, fault.ReasonHeldBack)
}

func (r *Recorder) failWaiting(err error, reason string) []*batch {
	finished := r.flights
	r.flights, r.waiting = nil, 0
	type topicKey struct{ topic, key string }
	stuck := map[topicKey]bool{}
	for _, f := range finished {
		for _, failure := range f.failures {
			record := &f.records[failure.Index]
			stuck[topicKey{record.Topic, string(record.Key)}] = true
		}
		for ; f.next < len(f.records); f.next++ {
			record := &f.records[f.next]
			if r.scatter && len(stuck) > 0 && !stuck[topicKey{record.Topic, string(record.Key)}] {
				r.store(record)
				continue
			}
			f.failures = append(f.failures, sink.Failure{Index: f.next, Class: sink.Retry, Reason: reason, Err: err})
		}
	}
	r.wake()
	return finished
}

func (r *Recorder) wake() {
	if r.roomy != nil {
		close(r.roomy)
		r.roomy = nil
	}
}

func (r *Recorder) store(rec *record.Record) {
	d := Delivered{
		Topic:     rec.Topic,
		Key:       bytes.Clone(rec.Key),
		Value:     bytes.Clone(rec.Value),
		Timestamp: rec.Timestamp,
		Partition: rec.Partition,
	}
	for _, h := range rec.Headers {
		d.Headers = append(d.Headers, record.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	if rec.Row != nil {
		d.Ordinal = rec.Row.Ordinal
		if rec.Row.Txn != nil {
			d.Commit = rec.Row.Txn.Commit
		}
	}
	r.delivered = append(r.delivered, d)
}

func finish(finished []*batch) {
	for _, f := range finished {
		if len(f.failures) > 0 {
			f.done(&sink.FailedError{Failures: f.failures})
		} else {
			f.done(nil)
		}
	}
}
