package kafka

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/twmb/franz-go/pkg/kgo"
)

// recordContext is the context of one record. It leads the shared promise to the
// record's batch without a closure or a map, and it is the gate of doc.go.
type recordContext struct {
	batch *inFlightBatch // this and index never change
	index int32
	want  int32 // explicit partition, or record.AutoPartition

	topic       *topicQueues // set when the record is partitioned, by the goroutine that holds the topic's lock
	noPartition bool         // want does not exist; written before the promise can run
	wakes       bool         // its partition was idle; written before queue is

	queue   atomic.Pointer[partitionQueue] // set once the record is in its partition's buffer
	seq     atomic.Uint64                  // its number in the queue, from 1
	settled atomic.Bool                    // has an outcome without ever having had a queue
}

var _ producer.ExplicitPartition = (*recordContext)(nil)

// This compiles as long as a recordContext has no more bytes than Overhead counts for it.
var _ [producer.ContextBytes - unsafe.Sizeof(recordContext{})]byte

func (rc *recordContext) reset(want int32) {
	rc.want, rc.topic, rc.noPartition, rc.wakes = want, nil, false, false
	rc.queue.Store(nil)
	rc.settled.Store(false)
}

// partitionQueue is one partition's sequence of records.
type partitionQueue struct {
	queued   uint64        // guarded by the client's lock of the partition
	last     int64         // when that was counted, in Unix nanoseconds; guarded likewise
	settled  atomic.Uint64 // written by the promises
	brokenIn uint64        // round in which a record of the queue failed; promises only
}

// topicQueues are those of one topic, guarded by the client's lock of the topic.
type topicQueues struct {
	*producer.TopicPartitioner
	all []*partitionQueue
}

// Done is closed for a record that must not be written any more. The client
// asks it for the first record of a batch that was never written and is first in
// its partition, holding the partition's lock. Whatever was ahead of that record
// has been answered by then, but the promises that tell us may not have run.
// They need no lock of the client's, so waiting for them here cannot deadlock.
func (rc *recordContext) Done() <-chan struct{} {
	if queue := rc.queue.Load(); queue != nil {
		for try := 0; queue.settled.Load()+1 < rc.seq.Load(); try++ {
			if try < 100 {
				runtime.Gosched()
			} else {
				time.Sleep(20 * time.Microsecond) //nolint:forbidigo // there is no event to wait for; a promise runs within microseconds
			}
		}
	}
	if rc.batch.sink.aborting.Load() {
		return closedChannel
	}
	return nil
}

// Err is the reason for which Done is closed.
func (rc *recordContext) Err() error {
	if rc.batch.sink.aborting.Load() {
		return errAborted
	}
	return nil
}

// Deadline reports whether there is none.
func (rc *recordContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Explicit is the partition that the record names.
func (rc *recordContext) Explicit() (partition int32, ok bool) {
	return rc.want, rc.want != record.AutoPartition
}

// Missing fails the record, and stops Send before the next one can follow.
func (rc *recordContext) Missing() {
	rc.noPartition = true
	rc.batch.sink.halt(false)
}

// Value has nothing.
func (rc *recordContext) Value(any) any { return nil }

// errAborted is also a cancellation, which is what the client looks for when it
// finds a record's context done.
var errAborted = fmt.Errorf("%w: %w", sink.ErrHalted, context.Canceled)

// queuePartitioner is a Partitioner that, as a hook, sees where records end up.
type queuePartitioner struct {
	*producer.Partitioner
	sink   *Sink
	topics topics.TopicSet // that had a partition through this client
}

func newQueuePartitioner(k *Sink) *queuePartitioner {
	p := &queuePartitioner{sink: k}
	p.Partitioner = producer.NewPartitioner(func(topic string) {
		p.topics.Add(topic)
		k.Topics.Use(topic)
	})
	return p
}

// ForTopic starts the queues of a topic, also after the client forgot about it.
func (p *queuePartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicQueues{TopicPartitioner: p.Topic(topic)}
}

// knows reports whether the client may have numbered records of the topic.
func (p *queuePartitioner) knows(topic string) bool { return p.topics.Has(topic) }

// OnProduceRecordPartitioned runs under the partition's lock, before the record
// can be written.
func (p *queuePartitioner) OnProduceRecordPartitioned(r *kgo.Record, _ int32) {
	rc := r.Context.(*recordContext)
	queue := rc.topic.queue(r.Partition)
	queue.queued++
	rc.wakes = queue.idle(rc.batch.now)
	queue.last = rc.batch.now
	rc.seq.Store(queue.queued)
	rc.queue.Store(queue)
	p.sink.wakeSend()
}

func (q *topicQueues) queue(partition int32) *partitionQueue {
	for int(partition) >= len(q.all) {
		q.all = append(q.all, new(partitionQueue))
	}
	return q.all[partition]
}

// Partition may run twice for a record.
func (q *topicQueues) Partition(r *kgo.Record, n int) int {
	r.Context.(*recordContext).topic = q
	return q.TopicPartitioner.Partition(r, n)
}
