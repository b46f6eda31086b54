package topics

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// VerifyCheckpointTopic requires a checkpoint topic to keep the last record of each key, in
// one order. The error is a *sink.Error.
func VerifyCheckpointTopic(ctx context.Context, admin *kadm.Client, topic string) error {
	refuse := func(format string, args ...any) error {
		return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonCheckpointTopic, Err: fmt.Errorf("checkpoint topic %q "+format, append([]any{topic}, args...)...)}
	}
	found, err := admin.ListTopics(ctx, topic)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return checkpointRefusal(topic, err)
	case err != nil:
		return readError(topic, err)
	}
	detail := found[topic]
	switch {
	case errors.Is(detail.Err, kerr.UnknownTopicOrPartition):
		return refuse("does not exist; run `cdc-relay setup`, or make it by hand with one partition and cleanup.policy=compact")
	case errors.Is(detail.Err, kerr.TopicAuthorizationFailed):
		return checkpointRefusal(topic, detail.Err)
	case detail.Err != nil:
		return readError(topic, detail.Err)
	case len(detail.Partitions) != 1:
		return refuse("has %d partitions and has to have one; name another in relay.checkpoint_topic and run `cdc-relay setup`, which creates it", len(detail.Partitions))
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return nil // the relay does not need the right to read settings
	case err != nil:
		return readError(topic, err)
	}
	config, err := configs.On(topic, nil)
	if err != nil || config.Err != nil {
		return nil //nolint:nilerr // the relay does not need the right to read settings
	}
	for _, c := range config.Configs {
		if policy := c.MaybeValue(); c.Key == "cleanup.policy" && policy != "compact" {
			return refuse("has cleanup.policy=%s, which deletes a position that has not moved for a long time; set it to compact: kafka-configs.sh --alter --topic %s --add-config cleanup.policy=compact", policy, topic)
		}
	}
	return nil
}

// checkpointRefusal is a right on the checkpoint topic that is missing.
func checkpointRefusal(topic string, err error) *sink.Error {
	return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonTopicAuthorizationFailed, Err: advice.Give(fmt.Errorf("checkpoint topic %q: %w", topic, err), "grant the relay's principal READ, WRITE and DESCRIBE on it: "+GrantCheckpoints(topic))}
}

// EnsureCheckpointTopic makes the checkpoint topic unless there is one that will do. missing: there
// was none, also in a dry run and where it cannot be made.
func EnsureCheckpointTopic(ctx context.Context, at broker.Connection, want Creation, topic string, dryRun bool) (missing bool, err error) {
	want = want.WithDefaults()
	admin, detail, err := lookUp(ctx, at, topic)
	if err != nil {
		return false, err
	}
	defer admin.Close()
	if !errors.Is(detail.Err, kerr.UnknownTopicOrPartition) {
		return false, VerifyCheckpointTopic(ctx, admin, topic)
	}
	if dryRun {
		return true, nil
	}
	settings := map[string]*string{
		"cleanup.policy": kadm.StringPtr("compact"),
		"segment.bytes":  kadm.StringPtr("16777216"), // what a start may have to read through
	}
	if replicated(ctx, admin, want.ReplicationFactor, settings, topic) {
		settings[minInsync] = kadm.StringPtr("2")
	}
	switch exists, err := makeTopic(ctx, admin, 1, want.ReplicationFactor, settings, topic); {
	case err != nil:
		return true, advice.Give(err, "make it by hand with one partition and cleanup.policy=compact, or grant CREATE on it")
	case exists:
		return false, VerifyCheckpointTopic(ctx, admin, topic)
	}
	for range 20 { // the brokers tell each other, and our client remembers for a while
		if err = VerifyCheckpointTopic(ctx, admin, topic); err == nil || ctx.Err() != nil {
			break
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return true, err
}

const minInsync = "min.insync.replicas"

// replicated reports whether a topic that is to be created would get at least three replicas and
// still acknowledge a record that only one of them has. The positions in it must survive the loss
// of a broker. If the brokers do not answer, factor decides.
func replicated(ctx context.Context, admin *kadm.Client, factor int16, settings map[string]*string, topic string) bool {
	tried, err := admin.ValidateCreateTopics(ctx, 1, factor, settings, topic)
	if err != nil || tried[topic].Err != nil {
		return factor >= 3
	}
	for name, c := range tried[topic].Configs {
		if n, err := strconv.Atoi(c.MaybeValue()); name == minInsync && err == nil && n > 1 {
			return false
		}
	}
	return max(factor, tried[topic].ReplicationFactor) >= 3
}

// lookBack is how far before the end the last checkpoint is looked for first. Each
// transaction takes two offsets.
const lookBack = 2000

// LastCheckpoint returns the newest committed value of the key before the offset. timeout bounds
// the wait for transactions before it.
func LastCheckpoint(ctx context.Context, at broker.Connection, topic, key string, end int64, timeout time.Duration) ([]byte, error) {
	from := max(0, end-lookBack)
	value, found, err := scanCheckpoints(ctx, at, topic, key, from, end, timeout)
	if err == nil && !found && from > 0 {
		value, _, err = scanCheckpoints(ctx, at, topic, key, 0, end, timeout)
	}
	return value, err
}

func scanCheckpoints(ctx context.Context, at broker.Connection, topic, key string, from, end int64, timeout time.Duration) (value []byte, found bool, err error) {
	client, err := at.Consumer(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(from)}}))
	if err != nil {
		return nil, false, err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, false, &sink.Error{Class: sink.Retry, Reason: fault.ReasonCheckpointHidden, Err: fmt.Errorf("read checkpoint topic %q: %w before offset %d; an open transaction of a relay that died hides later records until the brokers end it after %s",
				topic, context.Cause(ctx), end, timeout)}
		}
		for _, e := range fetches.Errors() {
			if errors.Is(e.Err, kerr.TopicAuthorizationFailed) {
				return nil, false, checkpointRefusal(topic, e.Err)
			}
			return nil, false, readError(topic, e.Err)
		}
		for records := fetches.RecordIter(); !records.Done(); {
			r := records.Next()
			switch {
			case r.Offset >= end:
				return value, found, nil
			case !r.Attrs.IsControl() && string(r.Key) == key:
				value, found = r.Value, true
			}
		}
	}
}

// GrantCheckpoints and GrantTransactions are what an administrator runs, who puts in the relay's
// principal.
func GrantCheckpoints(topic string) string {
	return "kafka-acls.sh --add --allow-principal User:… --operation Read --operation Write --operation Describe --topic " + topic
}

func GrantTransactions(id, pattern string) string {
	return fmt.Sprintf("kafka-acls.sh --add --allow-principal User:… --operation Write --operation Describe --transactional-id %s --resource-pattern-type %s", id, pattern)
}
