package kafkatx

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transactionBatch is one Send on its way.
type transactionBatch struct {
	records []record.Record
	done    func(error)
	kafka   *[]kgo.Record // from the pool; nil until it was produced
	size    int
}

// maxPooledRecords bounds the arrays that are kept for later batches.
const maxPooledRecords = 16 << 10

var kafkaRecords = sync.Pool{New: func() any { return new([]kgo.Record) }}

func newTransactionBatch(records []record.Record, done func(error)) *transactionBatch {
	return &transactionBatch{records: records, done: done}
}

// buildRecords makes the client's records.
func (b *transactionBatch) buildRecords(now time.Time) []kgo.Record {
	b.kafka = kafkaRecords.Get().(*[]kgo.Record)
	if cap(*b.kafka) < len(b.records) {
		*b.kafka = make([]kgo.Record, record.Room(len(b.records)))
	}
	out := (*b.kafka)[:len(b.records)]
	*b.kafka = out
	for i := range b.records {
		from := &b.records[i]
		fillRecord(&out[i], from, now)
		b.size += broker.BatchSize(from)
	}
	return out
}

// free gives the client's records back. No promise of theirs is outstanding.
func (b *transactionBatch) free() {
	if b.kafka == nil {
		return
	}
	clear(*b.kafka)
	if cap(*b.kafka) <= maxPooledRecords {
		kafkaRecords.Put(b.kafka)
	}
	b.kafka = nil
}

// fail reports every record: those that have a cause of their own with it, and the
// others with the common one.
func (b *transactionBatch) fail(own map[*kgo.Record]error, common error, describe func(topic string, cause error) sink.Failure) {
	result := &sink.FailedError{Failures: make([]sink.Failure, len(b.records))}
	for i := range b.records {
		cause := common
		if b.kafka != nil {
			if err := own[&(*b.kafka)[i]]; err != nil {
				cause = err
			}
		}
		result.Failures[i] = describe(b.records[i].Topic, cause)
		result.Failures[i].Index = i
	}
	b.free()
	b.done(result)
}

// outcomes are the answers to what was produced in one transaction.
type outcomes struct {
	wg     sync.WaitGroup
	broken chan struct{} // closed at the first failure

	mu     sync.Mutex
	failed map[*kgo.Record]error
}

func newOutcomes() *outcomes { return &outcomes{broken: make(chan struct{})} }

// settled is the promise of every record.
func (o *outcomes) settled(r *kgo.Record, err error) {
	if err != nil {
		o.fail(r, causeOf(r, err))
	}
	o.wg.Done()
}

func (o *outcomes) fail(r *kgo.Record, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = make(map[*kgo.Record]error)
		close(o.broken)
	}
	o.failed[r] = err
}

func (o *outcomes) isBroken() bool {
	select {
	case <-o.broken:
		return true
	default:
		return false
	}
}

// produce gives the client what fits. What does not is refused here, as the client
// would change it or refuse it in another order.
// It waits for answers when brokers refuse large batches; with ctx it gives up, which
// breaks the transaction.
func (o *outcomes) produce(ctx context.Context, t *Sink, client *kgo.Client, b *transactionBatch) {
	made := b.buildRecords(time.Now())
	settled := o.settled // made once: a method value for each record would be an allocation for each
	batch, unflushed := int(t.batchBytes.Load()), 0
	for i := range made {
		r := &b.records[i]
		size, err := t.CheckNow(ctx, r)
		if err != nil {
			o.fail(&made[i], err)
			return // the rest is held back: the transaction cannot be committed any more
		}
		if unflushed += size; batch > 0 && unflushed > batch {
			unflushed = size
			if client.Flush(ctx) != nil {
				o.fail(&made[i], sink.ErrHalted) // no answer of its own
				return                           // as above
			}
		}
		o.wg.Add(1)
		client.Produce(context.Background(), &made[i], settled)
	}
}

// failures are the answers. No promise is outstanding.
func (o *outcomes) failures() map[*kgo.Record]error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.failed) // more may fail while the caller reads
}

var errNotSealed = errors.New("the stream ended inside a transaction")
