package topics

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/letters"
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

// ReadExtent asks for that of the topic that is there now. The error is a *Error.
func ReadExtent(ctx context.Context, at broker.Connection, topic string) (Extent, error) {
	client, err := at.Consumer()
	if err != nil {
		return Extent{}, err
	}
	defer client.Close()
	return extent(ctx, client, topic)
}

// Extent is ReadExtent over the follower's own connections.
func (f *Follower) Extent(ctx context.Context) (Extent, error) {
	client, err := f.open()
	if err != nil {
		return Extent{}, readError(f.topic, err)
	}
	return extent(ctx, client, f.topic)
}

// Lasting returns why the followed dead-letter topic does not keep every letter: see letters.Topic.
func (f *Follower) Lasting(ctx context.Context, settings *letters.Topic, age time.Duration) error {
	client, err := f.open()
	if err != nil {
		return readError(f.topic, err)
	}
	return settings.Lasting(ctx, kadm.NewClient(client), age)
}

func extent(ctx context.Context, client *kgo.Client, topic string) (Extent, error) {
	detail, err := metadata(ctx, client, topic)
	if err == nil {
		err = kerr.ErrorForCode(detail.ErrorCode)
	}
	if err != nil {
		return Extent{}, readError(topic, err)
	}
	starts, err := kadm.NewClient(client).ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return Extent{}, readError(topic, err)
	}
	found := Extent{Begins: make(map[int32]int64)}
	if id := kadm.TopicID(detail.TopicID); id != (kadm.TopicID{}) {
		found.ID = id.String()
	}
	starts.Each(func(start kadm.ListedOffset) { found.Begins[start.Partition] = start.Offset })
	return found, nil
}

// metadata asks the brokers, and not kadm, which may answer with what it knows.
func metadata(ctx context.Context, client *kgo.Client, topic string) (kmsg.MetadataResponseTopic, error) {
	request := kmsg.NewPtrMetadataRequest()
	name := kmsg.NewMetadataRequestTopic()
	name.Topic = kmsg.StringPtr(topic)
	request.Topics = append(request.Topics, name)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return kmsg.MetadataResponseTopic{}, err
	}
	if len(answer.Topics) != 1 {
		return kmsg.MetadataResponseTopic{}, errors.New("the answer of the brokers names no topic")
	}
	return answer.Topics[0], nil
}
