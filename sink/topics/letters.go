package topics

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/twmb/franz-go/pkg/kadm"
)

// RefuseLetters says what is wrong with the cleanup.policy of a dead-letter topic; nil:
// nothing. Letters of one key, and the markers after them, share it, so a compacted topic
// loses rows that count as set aside.
func RefuseLetters(topic, policy string) *sink.Error {
	if !strings.Contains(policy, "compact") {
		return nil
	}
	return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonDeadLetterTopic, Err: advice.Give(
		fmt.Errorf("dead-letter topic %q has cleanup.policy=%s: of several dead letters with one key only the last would stay", topic, policy),
		fmt.Sprintf("set it to delete: kafka-configs.sh --alter --topic %s --add-config cleanup.policy=delete,retention.ms=-1", topic))}
}

// VerifyLetterTopic requires the dead-letter topic to keep every record. A topic that does not
// exist, or whose settings we may not read, is not judged.
func VerifyLetterTopic(ctx context.Context, admin *kadm.Client, topic string) error {
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil //nolint:nilerr // the relay does not need the right to read settings
	}
	config, err := configs.On(topic, nil)
	if err != nil || config.Err != nil {
		return nil //nolint:nilerr // as above
	}
	for _, c := range config.Configs {
		if c.Key != "cleanup.policy" {
			continue
		}
		if refused := RefuseLetters(topic, c.MaybeValue()); refused != nil {
			return refused
		}
	}
	return nil
}
