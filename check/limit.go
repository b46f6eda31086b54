package check

import (
	"context"
	"fmt"
	"strconv"

	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/twmb/franz-go/pkg/kadm"
)

// TopicLimit asks the brokers how large a batch a topic takes (max.message.bytes), for whoever looks at a record
// that it refused. The principal needs DESCRIBE_CONFIGS.
func TopicLimit(ctx context.Context, at broker.Connection, topic string) (bytes int, err error) {
	client, err := at.Consumer()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	configs, err := kadm.NewClient(client).DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("read the settings of topic %q: %w", topic, err)
	}
	config, err := configs.On(topic, nil)
	if err == nil {
		err = config.Err
	}
	if err != nil {
		return 0, fmt.Errorf("read the settings of topic %q: %w", topic, err)
	}
	for _, c := range config.Configs {
		if c.Key == "max.message.bytes" {
			return strconv.Atoi(c.MaybeValue())
		}
	}
	return 0, fmt.Errorf("read the settings of topic %q: the brokers do not say max.message.bytes", topic)
}
