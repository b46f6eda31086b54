package producer

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ExplicitPartition is the context of a record that may name its partition.
type ExplicitPartition interface {
	context.Context

	// Explicit is the partition, or ok is false.
	Explicit() (partition int32, ok bool)

	// Missing notes that the topic does not have the partition, before the record's
	// promise runs and before the next record can follow.
	Missing()
}

// Partitioner gives keyed records the Java client's partition, spreads others, and
// honours explicit partitions.
type Partitioner struct {
	inner  kgo.Partitioner
	starts func(topic string)
}

// NewPartitioner calls starts with a topic before its first record has a partition.
func NewPartitioner(starts func(topic string)) *Partitioner {
	return &Partitioner{kgo.StickyKeyPartitioner(nil), starts}
}

// ForTopic starts a topic, also after the client forgot about it.
func (p *Partitioner) ForTopic(topic string) kgo.TopicPartitioner { return p.Topic(topic) }

// Topic is ForTopic for a partitioner that adds to the result.
func (p *Partitioner) Topic(topic string) *TopicPartitioner {
	p.starts(topic)
	return &TopicPartitioner{p.inner.ForTopic(topic)}
}

// TopicPartitioner is a Partitioner for the records of one topic.
type TopicPartitioner struct{ inner kgo.TopicPartitioner }

// RequiresConsistency is true where the record decides the partition.
func (t *TopicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	_, explicit := explicitly(r)
	return explicit || t.inner.RequiresConsistency(r)
}

// Partition may run twice for a record.
func (t *TopicPartitioner) Partition(r *kgo.Record, n int) int {
	partition, explicit := explicitly(r)
	switch {
	case !explicit:
		return t.inner.Partition(r, n)
	case partition < 0 || int(partition) >= n:
		r.Context.(ExplicitPartition).Missing()
		return -1
	}
	return int(partition)
}

// OnNewBatch lets records without a key move to another partition. That it is
// here also makes the client hold the topic's lock until the record is buffered,
// which OnProduceRecordPartitioned relies on.
func (t *TopicPartitioner) OnNewBatch() { t.inner.(kgo.TopicPartitionerOnNewBatch).OnNewBatch() }

func explicitly(r *kgo.Record) (partition int32, ok bool) {
	if e, is := r.Context.(ExplicitPartition); is {
		return e.Explicit()
	}
	return 0, false
}
