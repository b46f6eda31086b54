package topics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/letters"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Creation is how missing topics are made, at their first record.
type Creation struct {
	Enabled           bool
	Partitions        int32
	ReplicationFactor int16 // -1: the broker's default
	Config            map[string]string
}

// WithDefaults returns a copy with every zero field set.
func (c Creation) WithDefaults() Creation {
	if c.ReplicationFactor == 0 {
		c.ReplicationFactor = -1
	}
	if c.Partitions == 0 {
		c.Partitions = -1
	}
	return c
}

// settings are those of a new topic; one that keeps everything neither expires nor
// compacts its records.
func (c Creation) settings(keep bool) map[string]*string {
	settings := make(map[string]*string, len(c.Config)+2)
	for name, value := range c.Config {
		settings[name] = kadm.StringPtr(value)
	}
	if keep {
		settings["cleanup.policy"] = kadm.StringPtr("delete")
		settings["retention.ms"], settings["retention.bytes"] = kadm.StringPtr("-1"), kadm.StringPtr("-1") // whatever the brokers' own are
	}
	return settings
}

// Creator creates a missing topic at its first record, and counts topics that were deleted and
// recreated. Any goroutine may use it.
type Creator struct {
	want Creation
	keep string // the topic that keeps every record
	log  zerolog.Logger

	used      TopicSet // that had records
	recreated atomic.Int64

	mu      sync.Mutex
	refused map[string]error // why a missing topic could not be created
}

// NewCreator makes topics as want says. The topic keep, if any, keeps every record.
func NewCreator(want Creation, keep string, log zerolog.Logger) *Creator {
	return &Creator{want: want.WithDefaults(), keep: keep, log: log}
}

// IsEnabled reports whether missing topics are made.
func (c *Creator) IsEnabled() bool { return c.want.Enabled }

// Use notes that a topic has records.
func (c *Creator) Use(topic string) { c.used.Add(topic) }

// Recreations counts topics that were found deleted and recreated.
func (c *Creator) Recreations() int64 { return c.recreated.Load() }

// repairTimeout bounds what a repair asks of the brokers. Senders wait for it.
const repairTimeout = 10 * time.Second

// Repair makes the topics that are missing, where that is wanted, and looks at those that
// were deleted.
func (c *Creator) Repair(ctx context.Context, client *kgo.Client, missing, deleted map[string]struct{}) {
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	if len(missing) > 0 && c.want.Enabled {
		for _, topic := range c.create(ctx, client, slices.Sorted(maps.Keys(missing))) {
			delete(deleted, topic) // that is logged already
		}
	}
	if len(deleted) > 0 {
		c.lookAt(ctx, client, slices.Sorted(maps.Keys(deleted)))
	}
}

// lookAt distinguishes a topic that was recreated from one that is just gone.
func (c *Creator) lookAt(ctx context.Context, client *kgo.Client, names []string) {
	found, err := kadm.NewClient(client).ListTopics(ctx, names...)
	if err != nil {
		c.log.Warn().Err(err).Strs("topics", names).Msg("topics were deleted; cannot find out whether they were created again")
		return
	}
	for _, topic := range names {
		detail, ok := found[topic]
		if !ok || detail.Err != nil {
			c.log.Error().Str("topic", topic).Msg("topic was deleted")
			continue
		}
		c.recreated.Add(1)
		c.log.Error().Str("topic", topic).Stringer("topic_id", detail.ID).
			Msg("topic was deleted and recreated; continuing with the new one. The records of the old one are gone")
	}
}

// create creates the topics and remembers the errors. It returns the topics that had records
// before: somebody deleted them, and the log has to say so.
func (c *Creator) create(ctx context.Context, client *kgo.Client, names []string) (again []string) {
	refused := make(map[string]error)
	for _, topic := range names {
		created, err := kadm.NewClient(client).CreateTopics(ctx, c.want.Partitions, c.want.ReplicationFactor, c.want.settings(topic == c.keep), topic)
		answer, ok := created[topic]
		switch {
		case ok && answer.Err == nil && c.used.Has(topic):
			again = append(again, topic)
			c.recreated.Add(1)
			c.log.Error().Str("topic", topic).Int32("partitions", c.want.Partitions).
				Msg("topic was deleted after records were sent to it; made it again, because of kafka.create_topics.enabled. What the old one held is gone")
		case ok && (answer.Err == nil || errors.Is(answer.Err, kerr.TopicAlreadyExists)):
			c.log.Info().Str("topic", topic).Int32("partitions", c.want.Partitions).Msg("created topic")
		case ok && answer.ErrMessage != "":
			refused[topic] = fmt.Errorf("%w: %s", answer.Err, answer.ErrMessage)
		case ok:
			refused[topic] = answer.Err
		case err != nil:
			refused[topic] = err
		}
	}
	c.mu.Lock()
	c.refused = refused
	c.mu.Unlock()
	return again
}

// Missing classifies a missing topic that is created: another try finds it, unless
// creating it was refused the last time.
func (c *Creator) Missing(topic string, err error) *sink.Error {
	c.mu.Lock()
	refused := c.refused[topic]
	c.mu.Unlock()
	if refused == nil {
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonUnknownTopic, Err: advice.Give(err, "the topic is being created")}
	}
	next := "create it by hand"
	if errors.Is(refused, kerr.TopicAuthorizationFailed) || errors.Is(refused, kerr.ClusterAuthorizationFailed) {
		next = "grant the relay's principal CREATE on the topic, or create it by hand"
	}
	return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonUnknownTopic, Err: advice.Give(fmt.Errorf("create the missing topic: %w", refused), next)}
}

// EnsureTopic creates the dead-letter topic, which keeps every record, unless there is one that will
// do. missing is as in EnsureCheckpointTopic. Partitions and replicas are want's, even if it is not enabled.
func EnsureTopic(ctx context.Context, at broker.Connection, want Creation, topic string, dryRun bool) (missing bool, err error) {
	want = want.WithDefaults()
	admin, detail, err := lookUp(ctx, at, topic)
	if err != nil {
		return false, err
	}
	defer admin.Close()
	switch {
	case detail.Err == nil:
		return false, letters.Verify(ctx, admin, topic)
	case !errors.Is(detail.Err, kerr.UnknownTopicOrPartition):
		return false, readError(topic, detail.Err)
	case dryRun:
		return true, nil
	}
	exists, err := makeTopic(ctx, admin, want.Partitions, want.ReplicationFactor, want.settings(true), topic)
	if err != nil {
		return true, advice.Give(err, "make it by hand, or grant CREATE on it")
	}
	return !exists, nil
}

// lookUp returns a client, which the caller closes, and what it says of a topic. Err is
// UnknownTopicOrPartition for one that does not exist.
func lookUp(ctx context.Context, at broker.Connection, topic string) (*kadm.Client, kadm.TopicDetail, error) {
	client, err := at.Consumer()
	if err != nil {
		return nil, kadm.TopicDetail{}, err
	}
	admin := kadm.NewClient(client)
	known, err := admin.ListTopics(ctx, topic)
	if err != nil {
		admin.Close()
		return nil, kadm.TopicDetail{}, readError(topic, err)
	}
	detail, ok := known[topic]
	if !ok {
		detail.Err = kerr.UnknownTopicOrPartition
	}
	return admin, detail, nil
}

// makeTopic creates a topic, unless one exists by now.
func makeTopic(ctx context.Context, admin *kadm.Client, partitions int32, factor int16, settings map[string]*string, topic string) (exists bool, err error) {
	created, err := admin.CreateTopic(ctx, partitions, factor, settings, topic)
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists):
		return true, nil
	case err != nil && created.ErrMessage != "":
		err = fmt.Errorf("%w: %s", err, created.ErrMessage)
	}
	if errors.Is(err, kerr.InvalidReplicationFactor) && factor < 0 {
		err = fmt.Errorf("%w Brokers before Kafka 2.4 have no default: set kafka.create_topics.replication_factor", err)
	}
	if err != nil {
		return false, fmt.Errorf("create topic %q: %w", topic, err)
	}
	return false, nil
}
