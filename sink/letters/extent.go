package letters

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Extent says which topic has a name, and from where on its partitions have records.
type Extent struct {
	ID     string          // empty: the brokers give topics none
	Begins map[int32]int64 // the first offset, by partition
}

// ReadExtent asks for that of the topic that is there now. The error is a *sink.Error.
func ReadExtent(ctx context.Context, at broker.Connection, topic string) (Extent, error) {
	client, err := at.Consumer()
	if err != nil {
		return Extent{}, err
	}
	defer client.Close()
	return ExtentOf(ctx, client, topic)
}

// ExtentOf is ReadExtent over a client's connections.
func ExtentOf(ctx context.Context, client *kgo.Client, topic string) (Extent, error) {
	found := Extent{Begins: make(map[int32]int64)}
	id, err := ID(ctx, client, topic)
	if err != nil {
		return Extent{}, failure(topic, err)
	}
	if id != (kadm.TopicID{}) {
		found.ID = id.String()
	}
	starts, err := kadm.NewClient(client).ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return Extent{}, failure(topic, err)
	}
	starts.Each(func(start kadm.ListedOffset) { found.Begins[start.Partition] = start.Offset })
	return found, nil
}

func failure(topic string, err error) error {
	e := broker.Classify(err)
	return &sink.Error{Class: e.Class, Reason: e.Reason, Err: fmt.Errorf("look at topic %q: %w", topic, e.Err)}
}

// ID asks the brokers for that of a topic, and not kadm, which may answer with what it knows.
func ID(ctx context.Context, client *kgo.Client, topic string) (kadm.TopicID, error) {
	request := kmsg.NewPtrMetadataRequest()
	name := kmsg.NewMetadataRequestTopic()
	name.Topic = kmsg.StringPtr(topic)
	request.Topics = append(request.Topics, name)
	answer, err := request.RequestWith(ctx, client)
	switch {
	case err != nil:
		return kadm.TopicID{}, err
	case len(answer.Topics) != 1:
		return kadm.TopicID{}, errors.New("the answer of the brokers names no topic")
	}
	return answer.Topics[0].TopicID, kerr.ErrorForCode(answer.Topics[0].ErrorCode)
}
