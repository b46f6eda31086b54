package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// explicitPartition is the context of a record that may name its partition.
type explicitPartition interface {
	context.Context

	// Explicit is the partition, or ok is false.
	Explicit() (partition int32, ok bool)

	// Missing notes that the topic does not have the partition, before the record's
	// promise runs and before the next record can follow.
	Missing()
}

// partitioner gives keyed records the Java client's partition, spreads others, and
// honours explicit partitions.
type partitioner struct {
	inner  kgo.Partitioner
	starts func(topic string)
}

// NewPartitioner calls starts with a topic before its first record has a partition.
func NewPartitioner(starts func(topic string)) *partitioner {
	return &partitioner{kgo.StickyKeyPartitioner(nil), starts}
}

// ForTopic starts a topic, also after the client forgot about it.
func (p *partitioner) ForTopic(topic string) kgo.TopicPartitioner { return p.forTopic(topic) }

func (p *partitioner) forTopic(topic string) *topicPartitioner {
	p.starts(topic)
	return &topicPartitioner{p.inner.ForTopic(topic)}
}

type topicPartitioner struct{ inner kgo.TopicPartitioner }

// RequiresConsistency is true where the record decides the partition.
func (t *topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	_, explicit := explicitly(r)
	return explicit || t.inner.RequiresConsistency(r)
}

// Partition may run twice for a record.
func (t *topicPartitioner) Partition(r *kgo.Record, n int) int {
	partition, explicit := explicitly(r)
	switch {
	case !explicit:
		return t.inner.Partition(r, n)
	case partition < 0 || int(partition) >= n:
		r.Context.(explicitPartition).Missing()
		return -1
	}
	return int(partition)
}

// OnNewBatch lets records without a key move to another partition. That it is
// here also makes the client hold the topic's lock until the record is buffered,
// which OnProduceRecordPartitioned relies on.
func (t *topicPartitioner) OnNewBatch() { t.inner.(kgo.TopicPartitionerOnNewBatch).OnNewBatch() }

func explicitly(r *kgo.Record) (partition int32, ok bool) {
	if e, is := r.Context.(explicitPartition); is {
		return e.Explicit()
	}
	return 0, false
}
