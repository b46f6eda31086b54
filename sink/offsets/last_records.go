package offsets

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// LastRecords are the last records that were read of a topic, one for each partition. They show that the
// topic was recreated where nothing else does: before Kafka 3.1 an answer with records does not have
// the id of their topic, so a client reads on at its offset in the new topic, and never sees the records
// before it. A topic that was recreated has another record at the offset of one of these, or none. The zero
// value is none. It is safe for concurrent use.
type LastRecords struct {
	mu   sync.Mutex
	last map[int32]lastRecord
}

// lastRecord tells a record from that of another topic at the same offset. Two topics of a name have no
// producer that wrote to both in the same millisecond, as one was deleted before.
type lastRecord struct {
	offset   int64
	written  int64 // milliseconds
	producer int64
	epoch    int16
}

func recordOf(r *kgo.Record) lastRecord {
	return lastRecord{r.Offset, r.Timestamp.UnixMilli(), r.ProducerID, r.ProducerEpoch}
}

// Set notes the last record of its partition.
func (l *LastRecords) Set(r *kgo.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = make(map[int32]lastRecord)
	}
	l.last[r.Partition] = recordOf(r)
}

// Clear forgets all.
func (l *LastRecords) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = nil
}

// Any reports whether something was read.
func (l *LastRecords) Any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.last) > 0
}

// lookTime bounds one look at all partitions.
const lookTime = 10 * time.Second

// Gone reports whether a record that was read is not there any more. One that was deleted with all
// before it does not count. The error means that nobody knows.
func (l *LastRecords) Gone(ctx context.Context, client *kgo.Client, topic string) (bool, error) {
	l.mu.Lock()
	last := maps.Clone(l.last)
	l.mu.Unlock()
	if len(last) == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	found, err := kadm.NewClient(client).ListTopics(ctx, topic)
	if err != nil {
		return false, err
	}
	detail, ok := found[topic]
	if !ok {
		detail.Err = kerr.UnknownTopicOrPartition
	}
	if detail.Err != nil {
		return false, detail.Err
	}
	// At once: a broker answers the fetches of a connection one after the other, and each of them would
	// wait for one of the client's own, which the broker holds until records come.
	var looks sync.WaitGroup
	var mu sync.Mutex
	gone := false
	for partition, was := range last {
		looks.Go(func() {
			is, failed := was.gone(ctx, client, detail, partition)
			mu.Lock()
			defer mu.Unlock()
			if gone = gone || is; failed != nil {
				err = failed
			}
		})
	}
	looks.Wait()
	if gone {
		return true, nil
	}
	return false, err
}

// gone reports whether a partition has something else where the record was.
func (was lastRecord) gone(ctx context.Context, client *kgo.Client, topic kadm.TopicDetail, partition int32) (bool, error) {
	if _, ok := topic.Partitions[partition]; !ok {
		return true, nil // a topic never loses one
	}
	found, _, err := fetch(ctx, client, topic, partition, 1, kgo.ProcessFetchPartitionOpts{Offset: was.offset, KeepControlRecords: true})
	switch {
	case err != nil:
		return false, err
	case errors.Is(found.Err, kerr.OffsetOutOfRange):
		starts, err := kadm.NewClient(client).ListStartOffsets(ctx, topic.Topic)
		if err == nil {
			err = starts.Error()
		}
		if err != nil {
			return false, err
		}
		start, _ := starts.Lookup(topic.Topic, partition)
		return start.Offset <= was.offset, nil
	case found.Err != nil:
		return false, found.Err
	case len(found.Records) == 0:
		return false, kerr.OffsetNotAvailable // a new leader may not know yet that all replicas have it
	}
	return recordOf(found.Records[0]) != was, nil
}
