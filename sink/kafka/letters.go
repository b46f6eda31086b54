package kafka

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/twmb/franz-go/pkg/kadm"
)

// checkLetters wants the dead-letter topic to keep every record. Letters of one key, and
// the markers after them, share it, so a compacted topic loses rows that count as set
// aside. A topic that is not there, or whose settings we may not read, is not judged.
func (k *Sink) checkLetters(ctx context.Context) error {
	topic := k.cfg.DeadLetterTopic
	if topic == "" {
		return nil
	}
	configs, err := kadm.NewClient(k.client.Load().Client).DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil //nolint:nilerr // the relay does not need the right to read settings
	}
	config, err := configs.On(topic, nil)
	if err != nil || config.Err != nil {
		return nil //nolint:nilerr // as above
	}
	for _, c := range config.Configs {
		if policy := c.MaybeValue(); c.Key == "cleanup.policy" && strings.Contains(policy, "compact") {
			return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonDeadLetterTopic, Err: advice.Give(
				fmt.Errorf("dead-letter topic %q has cleanup.policy=%s: of several letters with one key only the last would stay", topic, policy),
				fmt.Sprintf("set it to delete: kafka-configs.sh --alter --topic %s --add-config cleanup.policy=delete,retention.ms=-1", topic))}
		}
	}
	return nil
}
