package kafka

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// inFlightBatch is one Send on its way. Its arrays are used again, so that sending
// allocates nothing for a record.
type inFlightBatch struct {
	sink    *Sink           // never changes
	ctx     context.Context // of Send; bounds what produce waits for
	records []record.Record
	done    func(error)
	size    int   // bytes of the records in batches of their own
	ready   int   // how many records can be sent, from the first on
	refusal error // why the record after them cannot be sent
	now     int64 // when the client is given records of it, in Unix nanoseconds

	rest []int // records that were not handed over, ascending; guarded by the sink's gathered.mu

	kafka    []kgo.Record
	contexts []recordContext

	left atomic.Int32 // records without an outcome, and one for Send itself

	mu     sync.Mutex
	failed []failed // guarded by mu until left is 0
}

// failed is a record that is not durable, before its failure is described.
type failed struct {
	index int
	err   error
}

// maxPooled bounds the arrays that are kept for later batches.
const maxPooled = 16 << 10

// newInFlightBatch sizes the arrays and fills them.
func (k *Sink) newInFlightBatch(ctx context.Context, records []record.Record, done func(error)) *inFlightBatch {
	f := k.batches.Get().(*inFlightBatch)
	f.ctx, f.records, f.done, f.size, f.ready = ctx, records, done, 0, len(records)
	f.left.Store(int32(len(records)) + 1)
	if cap(f.kafka) < len(records) {
		n := record.Room(len(records))
		f.kafka, f.contexts = make([]kgo.Record, n), make([]recordContext, n)
		for i := range f.contexts {
			f.contexts[i].batch, f.contexts[i].index = f, int32(i)
		}
	}
	f.kafka, f.contexts = f.kafka[:len(records)], f.contexts[:len(records)]
	for i := range records {
		size, err := k.CheckNow(ctx, &records[i])
		if err != nil {
			f.ready, f.refusal = i, err
			break
		}
		f.size += size
	}
	f.buildRecords(time.Now())
	f.rest = slices.Grow(f.rest[:0], len(records))
	for i := range records {
		f.rest = append(f.rest, i)
	}
	return f
}

func (f *inFlightBatch) buildRecords(now time.Time) {
	for i := range f.records[:f.ready] {
		from, rc := &f.records[i], &f.contexts[i]
		rc.reset(from.Partition)
		producer.FillRecord(rc, &f.kafka[i], from, now)
	}
}

func (f *inFlightBatch) fail(index int, err error) {
	f.mu.Lock()
	f.failed = append(f.failed, failed{index, err})
	f.mu.Unlock()
}

// Send gives the records to the client, in a backlog together with those of other Sends.
func (k *Sink) Send(ctx context.Context, records []record.Record, done func(error)) {
	if len(records) == 0 {
		done(nil)
		return
	}
	k.sends.add()
	k.gather(k.newInFlightBatch(ctx, records, done))
}

// produce hands over records until one cannot be. It lists what it leaves in f.rest, and
// returns the reason if the first of these is the one at fault.
//
// A record whose topic is not loaded holds up those of the same topic alone, so that
// many new topics are loaded together. So does one that wakes a partition (waking.go),
// until it is answered.
func (k *Sink) produce(f *inFlightBatch) error {
	c := k.client.Load()
	if err := k.begin(f.ctx, c); err != nil {
		return err
	}
	for len(f.rest) > 0 {
		todo, loading := f.rest, map[string]*recordContext(nil)
		f.rest, f.now = f.rest[:0], k.now().UnixNano()
		for n, i := range todo {
			if k.halted.Load() {
				f.rest = append(f.rest, todo[n:]...)
				return nil
			}
			if i == f.ready { // it is the last to be tried
				later := len(f.rest)
				f.rest = append(f.rest, todo[n:]...)
				if later == 0 && loading == nil {
					return f.refusal
				}
				break
			}
			topic := f.records[i].Topic
			if loading[topic] != nil || k.waking.holds(topic) {
				f.rest = append(f.rest, i)
				continue
			}
			rc := &f.contexts[i]
			// The client would fail records by this context too, so it is one that
			// never ends. The client has no limit that Produce would wait for.
			c.Produce(context.Background(), &f.kafka[i], k.onSettled)
			if queue := rc.queue.Load(); queue == nil {
				if loading == nil {
					loading = make(map[string]*recordContext)
				}
				loading[topic] = rc
			} else if rc.wakes {
				k.waking = k.waking.with(topic, queue, rc.seq.Load())
			}
		}
		if err := k.await(f.ctx, loading); err != nil {
			return err
		}
		if err := k.awaitWaking(f); err != nil {
			return err
		}
	}
	return nil
}

// begin has a new client get its producer id, or waits until the sink halts. A client that was refused one
// keeps to that and is replaced.
func (k *Sink) begin(ctx context.Context, c *client) error {
	if c.hasID {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := make(chan error, 1)
	go func() { asked <- broker.AskProducerID(ctx, c.Client) }()
	k.awaiting.Store(true)
	defer k.awaiting.Store(false)
	for !k.halted.Load() {
		select {
		case err := <-asked:
			c.hasID = err == nil
			switch {
			case ctx.Err() != nil:
				return interrupted(ctx)
			case err != nil && producer.HeldBack(err):
				return k.heldBack()
			case err != nil:
				k.mu.Lock()
				k.broken.replace = true
				k.mu.Unlock()
				k.halt(true)
			}
			return err
		case <-k.placed:
		case <-ctx.Done():
			return interrupted(ctx)
		}
	}
	return nil
}

// await waits until each record has a partition or an outcome. It has neither while
// its topic is not loaded.
func (k *Sink) await(ctx context.Context, loading map[string]*recordContext) error {
	if loading == nil {
		return nil
	}
	k.awaiting.Store(true)
	defer k.awaiting.Store(false)
	for _, rc := range loading {
		for rc.queue.Load() == nil && !rc.settled.Load() {
			select {
			case <-k.placed:
			case <-ctx.Done():
				return interrupted(ctx)
			}
		}
	}
	return nil
}

// wakeSend wakes Send if it waits.
func (k *Sink) wakeSend() {
	if k.awaiting.Load() {
		select {
		case k.placed <- struct{}{}:
		default:
		}
	}
}

// heldBack is the failure of a record that nothing is wrong with.
func (k *Sink) heldBack() error {
	if k.closed.Load() {
		return sink.ErrClosed
	}
	return sink.ErrHalted
}

// settled is what the client calls with the outcome of each record, the promise of franz-go: one
// call after another, and for one partition in the order of Send.
func (k *Sink) settled(r *kgo.Record, err error) {
	rc := r.Context.(*recordContext)
	queue := rc.queue.Load()
	switch {
	case err != nil:
		k.gaveUp(rc, queue, r, err)
	case queue != nil && queue.brokenIn == k.round.Load():
		k.overtaken.Add(1)
		k.halt(true)
		rc.batch.fail(int(rc.index), errOvertaken)
	}
	f := rc.batch
	if queue != nil {
		queue.settled.Store(rc.seq.Load()) // after the halt, for the gate
	} else {
		rc.settled.Store(true)
	}
	k.wakeSend()
	k.countOutcomes(f, 1)
}

// gaveUp notes a record that the client gave up.
func (k *Sink) gaveUp(rc *recordContext, queue *partitionQueue, r *kgo.Record, err error) {
	k.halt(true)
	if queue != nil {
		queue.brokenIn = k.round.Load()
	}
	if rc.noPartition {
		err = &producer.NoPartitionError{Partition: rc.want}
	}
	if producer.HeldBack(err) {
		err = k.heldBack()
	} else {
		k.noteRepair(r.Topic, err)
	}
	rc.batch.fail(int(rc.index), err)
}

// halt stops Send. With abort it also ends what the client has not written, which is not needed
// while everything handed over may still become durable.
func (k *Sink) halt(abort bool) {
	k.halted.Store(true)
	k.wakeSend()
	if abort {
		k.abortOnce()
	}
}

// abortOnce closes the gate and starts the abort. Whoever finds the gate closed, and takes
// the lock, finds what to wait for.
func (k *Sink) abortOnce() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.aborting.CompareAndSwap(false, true) || k.closed.Load() {
		return
	}
	aborted := make(chan struct{})
	k.aborted = aborted
	go func() {
		defer close(aborted)
		k.abort()
	}()
}

// abort ends what the client has not written, waits for the answers to what it
// has, and repairs the client.
func (k *Sink) abort() {
	if err := k.client.Load().AbortBufferedRecords(k.life); err != nil {
		return // closed meanwhile
	}
	k.repair(k.life)
}

// countOutcomes counts outcomes; with the last one the batch is over.
func (k *Sink) countOutcomes(f *inFlightBatch, n int) {
	if n == 0 || f.left.Add(int32(-n)) != 0 {
		return
	}
	done, err := f.done, k.outcome(f)
	f.ctx, f.records, f.done, f.refusal, f.failed = nil, nil, nil, nil, f.failed[:0]
	clear(f.kafka)
	if cap(f.kafka) <= maxPooled {
		k.batches.Put(f)
	}
	done(err)
	k.sends.end()
}

// outcome describes the failed records.
func (k *Sink) outcome(f *inFlightBatch) error {
	if len(f.failed) == 0 {
		return nil
	}
	slices.SortFunc(f.failed, func(a, b failed) int { return a.index - b.index })
	result := &sink.FailedError{Failures: make([]sink.Failure, 0, len(f.failed))}
	var last sink.Failure
	var lastTopic string
	var lastCause error
	for _, each := range f.failed {
		topic := f.records[each.index].Topic
		if lastCause == nil || each.err != lastCause || topic != lastTopic { //nolint:errorlint // the very same value
			last, lastTopic, lastCause = k.Failure(topic, each.err), topic, each.err
		}
		last.Index = each.index
		result.Failures = append(result.Failures, last)
	}
	clear(f.failed)
	return result
}
