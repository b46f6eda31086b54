package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ReadTopics reads topics from their beginning to the end that they have now, in
// no order between partitions. A topic that does not exist has no records.
func ReadTopics(ctx context.Context, brokers []string, topics []string, opts ...kgo.Opt) ([]*kgo.Record, error) {
	return read(ctx, brokers, topics, (*kadm.Client).ListEndOffsets, opts)
}

// ReadCommitted is ReadTopics for what is committed now: it leaves out aborted transactions, and ends
// at a transaction that is open.
func ReadCommitted(ctx context.Context, brokers []string, topics []string) ([]*kgo.Record, error) {
	return read(ctx, brokers, topics, (*kadm.Client).ListCommittedOffsets, []kgo.Opt{kgo.FetchIsolationLevel(kgo.ReadCommitted())})
}

// listing asks for one offset of each partition.
type listing func(*kadm.Client, context.Context, ...string) (kadm.ListedOffsets, error)

func read(ctx context.Context, brokers []string, topics []string, list listing, opts []kgo.Opt) ([]*kgo.Record, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	admin, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	defer admin.Close()
	left, err := ends(ctx, kadm.NewClient(admin), topics, list)
	if err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	records, err := readTo(ctx, left, append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, opts...))
	if err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	return records, nil
}

// ends are the offsets to read up to, without partitions that are empty.
func ends(ctx context.Context, admin *kadm.Client, topics []string, list listing) (map[string]map[int32]int64, error) {
	known, err := admin.ListTopics(ctx, topics...)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, detail := range known {
		if detail.Err == nil {
			names = append(names, detail.Topic)
		}
	}
	left := map[string]map[int32]int64{}
	if len(names) == 0 {
		return left, nil
	}
	listed, err := list(admin, ctx, names...)
	if err != nil {
		return nil, err
	}
	if err := listed.Error(); err != nil {
		return nil, err
	}
	starts, err := admin.ListStartOffsets(ctx, names...)
	if err != nil {
		return nil, err
	}
	listed.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(end.Topic, end.Partition)
		if end.Offset <= start.Offset {
			return
		}
		if left[end.Topic] == nil {
			left[end.Topic] = map[int32]int64{}
		}
		left[end.Topic][end.Partition] = end.Offset
	})
	return left, nil
}

func readTo(ctx context.Context, left map[string]map[int32]int64, opts []kgo.Opt) ([]*kgo.Record, error) {
	from := map[string]map[int32]kgo.Offset{}
	for topic, partitions := range left {
		from[topic] = map[int32]kgo.Offset{}
		for partition := range partitions {
			from[topic][partition] = kgo.NewOffset().AtStart()
		}
	}
	if len(from) == 0 {
		return nil, nil
	}
	// Control records count as offsets: without them the end of a partition that
	// was written in transactions would never be seen.
	client, err := kgo.NewClient(append(opts, kgo.ConsumePartitions(from), kgo.KeepControlRecords())...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	at := map[string]map[int32]int64{}
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return records, fmt.Errorf("not read to their ends %v, only up to %v: %w", left, at, context.Cause(ctx))
		}
		for _, failed := range fetches.Errors() {
			return records, fmt.Errorf("topic %s: %w", failed.Topic, failed.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, open := left[r.Topic][r.Partition]
			if !open || r.Offset >= end {
				return
			}
			if at[r.Topic] == nil {
				at[r.Topic] = map[int32]int64{}
			}
			at[r.Topic][r.Partition] = r.Offset
			if !r.Attrs.IsControl() {
				records = append(records, r)
			}
			if r.Offset == end-1 {
				delete(left[r.Topic], r.Partition)
				if len(left[r.Topic]) == 0 {
					delete(left, r.Topic)
				}
			}
		})
	}
	return records, nil
}

// Tail follows topics from now on. It may miss what is written before it looked
// at a topic for the first time; it is for a screen, not for proof.
type Tail struct{ client *kgo.Client }

// A tail looks for new topics often, and shows a record soon.
const (
	metadataAge = 250 * time.Millisecond
	fetchWait   = 100 * time.Millisecond
)

// NewTail follows every topic that matches one of the regular expressions.
func NewTail(brokers []string, patterns ...string) (*Tail, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.ConsumeRegex(), kgo.ConsumeTopics(patterns...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(metadataAge), kgo.MetadataMaxAge(metadataAge*4),
		kgo.FetchMaxWait(fetchWait),
	)
	if err != nil {
		return nil, fmt.Errorf("follow topics: %w", err)
	}
	return &Tail{client: client}, nil
}

// Next waits for records. Trouble with the brokers is waited out; only the end of
// ctx ends it.
func (t *Tail) Next(ctx context.Context) ([]*kgo.Record, error) {
	for {
		fetches := t.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if records := fetches.Records(); len(records) > 0 {
			return records, nil
		}
	}
}

// Close ends it.
func (t *Tail) Close() { t.client.Close() }
