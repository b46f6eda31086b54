package offsets

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DropUnreadable drops partitions without a readable record between next and end. Their records
// were aborted, and the client passes over those silently. While an open transaction lies after
// them, there is no other sign.
func DropUnreadable(ctx context.Context, client *kgo.Client, topic string, next, ends map[int32]int64) {
	admin := kadm.NewClient(client)
	details, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return // the client continues, and says what is wrong
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return
	}
	for partition, end := range ends {
		from := next[partition]
		if start, ok := starts.Lookup(topic, partition); ok && start.Err == nil {
			from = max(from, start.Offset)
		}
		if unreadable(ctx, client, details[topic], partition, from, end) {
			delete(ends, partition)
		}
	}
}

// unreadable reports whether what is between two offsets was all aborted. When in doubt it is not.
func unreadable(ctx context.Context, client *kgo.Client, topic kadm.TopicDetail, partition int32, from, end int64) bool {
	for from < end {
		options := kgo.ProcessFetchPartitionOpts{Offset: from, IsolationLevel: kgo.ReadCommitted()}
		found, behind, err := fetch(ctx, client, topic, partition, 2<<20, options)
		if err != nil || found.Err != nil || behind <= from || len(found.Records) > 0 && found.Records[0].Offset < end {
			return false
		}
		from = behind
	}
	return true
}

// fetch asks the leader for records from an offset on, and returns the offset behind them.
func fetch(ctx context.Context, client *kgo.Client, topic kadm.TopicDetail, partition, most int32, options kgo.ProcessFetchPartitionOpts) (kgo.FetchPartition, int64, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, options.Offset, most
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = topic.Topic, topic.ID, []kmsg.FetchRequestTopicPartition{p}
	request := kmsg.NewPtrFetchRequest()
	if request.Topics = []kmsg.FetchRequestTopic{t}; options.IsolationLevel == kgo.ReadCommitted() {
		request.IsolationLevel = 1
	}
	response, err := client.Broker(int(topic.Partitions[partition].Leader)).Request(ctx, request)
	if err != nil {
		return kgo.FetchPartition{}, 0, err
	}
	topics := response.(*kmsg.FetchResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return kgo.FetchPartition{}, 0, errors.New("the answer of the broker has no partition")
	}
	options.Topic, options.Partition = topic.Topic, partition
	found, behind := kgo.ProcessFetchPartition(options, &topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	return found, behind, nil
}
