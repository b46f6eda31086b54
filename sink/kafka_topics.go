package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// repairTimeout bounds what a repair asks of the brokers. The caller waits for
// it in Resume.
const repairTimeout = 10 * time.Second

// repairs is what failures showed to be wrong with the client's idea of the
// cluster. Guarded by Kafka.mu.
type repairs struct {
	missing   map[string]struct{} // topics no broker knows
	recreated map[string]struct{} // topics whose id changed
	refresh   bool                // metadata says what may have been corrected since
	replace   bool                // the client holds an error for good

	// refused says why a missing topic could not be created.
	refused map[string]error
}

// noteRepair keeps what a record's failure says about the client.
func (k *Kafka) noteRepair(topic string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		k.broken.missing = with(k.broken.missing, topic)
	case errors.Is(err, kerr.UnknownTopicID):
		k.broken.recreated = with(k.broken.recreated, topic)
	case errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.UnknownServerError), classify(err).Reason == ReasonKafkaError:
		// A refused InitProducerID stays with the client for ever.
		k.broken.replace = true
	default:
		k.broken.refresh = true
	}
}

func with(set map[string]struct{}, topic string) map[string]struct{} {
	if set == nil {
		set = make(map[string]struct{})
	}
	set[topic] = struct{}{}
	return set
}

// repair makes the client fit for another try. Nothing is buffered in it.
func (k *Kafka) repair(ctx context.Context) {
	k.mu.Lock()
	broken := k.broken
	k.broken = repairs{refused: broken.refused} // the failures that led here are put into words meanwhile
	k.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	c := k.client.Load()
	deleted := len(broken.recreated) > 0
	if len(broken.missing) > 0 && k.cfg.CreateTopics.Enabled {
		for _, topic := range k.createTopics(ctx, c, slices.Sorted(maps.Keys(broken.missing))) {
			delete(broken.recreated, topic) // that is told already
		}
	}
	if len(broken.recreated) > 0 {
		k.lookAtRecreated(ctx, c, slices.Sorted(maps.Keys(broken.recreated)))
	}
	switch {
	case broken.replace || deleted || slices.ContainsFunc(slices.Collect(maps.Keys(broken.missing)), c.partitioner.knows):
		k.replace(c)
	case len(broken.missing) > 0:
		// Forgotten, the topic is looked up at once by the next record.
		c.PurgeTopicsFromProducing(slices.Collect(maps.Keys(broken.missing))...)
	case broken.refresh:
		c.ForceMetadataRefresh()
	}
}

// replace starts a new client, and thereby a new producer id. Purging a topic
// that this client has written to would start its sequence numbers again under
// the same id, and a broker that still has the topic may take such a batch for
// one it knows and acknowledge it without writing it.
func (k *Kafka) replace(old *client) {
	c, err := k.connect()
	if err != nil {
		k.log.Error().Err(err).Msg("could not start a new kafka client; going on with the old one")
		return
	}
	k.mu.Lock()
	closed := k.closed.Load()
	if !closed {
		k.client.Store(c)
	}
	k.mu.Unlock()
	if closed {
		c.Close()
		return
	}
	k.reach.reset()
	old.Close()
}

// lookAtRecreated tells a topic that was made again from one that is just gone.
func (k *Kafka) lookAtRecreated(ctx context.Context, c *client, topics []string) {
	found, err := kadm.NewClient(c.Client).ListTopics(ctx, topics...)
	if err != nil {
		k.log.Warn().Err(err).Strs("topics", topics).Msg("topics were deleted; could not ask whether they were made again")
		return
	}
	for _, topic := range topics {
		detail, ok := found[topic]
		if !ok || detail.Err != nil {
			k.log.Error().Str("topic", topic).Msg("topic was deleted")
			continue
		}
		k.recreated.Add(1)
		k.log.Error().Str("topic", topic).Stringer("topic_id", detail.ID).
			Msg("topic was deleted and made again; going on with the new one. What the old one held is gone")
	}
}

// createTopics makes the topics and remembers why it could not. It returns those that
// it made again: a topic that records went to before was deleted, and whatever deletes
// topics has to be found.
func (k *Kafka) createTopics(ctx context.Context, c *client, topics []string) (again []string) {
	want := k.cfg.CreateTopics
	refused := make(map[string]error)
	for _, topic := range topics {
		created, err := kadm.NewClient(c.Client).CreateTopics(ctx, want.Partitions, want.ReplicationFactor, want.settings(topic == k.cfg.DeadLetterTopic), topic)
		answer, ok := created[topic]
		switch {
		case ok && answer.Err == nil && k.sent.has(topic):
			again = append(again, topic)
			k.recreated.Add(1)
			k.log.Error().Str("topic", topic).Int32("partitions", want.Partitions).
				Msg("topic was deleted after records were sent to it; made it again, because of kafka.create_topics.enabled. What the old one held is gone")
		case ok && (answer.Err == nil || errors.Is(answer.Err, kerr.TopicAlreadyExists)):
			k.log.Info().Str("topic", topic).Int32("partitions", want.Partitions).Msg("created topic")
		case ok && answer.ErrMessage != "":
			refused[topic] = fmt.Errorf("%w: %s", answer.Err, answer.ErrMessage)
		case ok:
			refused[topic] = answer.Err
		case err != nil:
			refused[topic] = err
		}
	}
	k.mu.Lock()
	k.broken.refused = refused
	k.mu.Unlock()
	return again
}

// missing classifies a missing topic that the sink creates: another try finds
// it, unless creating it was refused the last time.
func (k *Kafka) missing(topic string, err error) *Error {
	k.mu.Lock()
	refused := k.broken.refused[topic]
	k.mu.Unlock()
	if refused == nil {
		return &Error{Retry, ReasonUnknownTopic, advise(err, "the topic is being created")}
	}
	next := "create it by hand"
	if errors.Is(refused, kerr.TopicAuthorizationFailed) || errors.Is(refused, kerr.ClusterAuthorizationFailed) {
		next = "grant the relay's principal CREATE on the topic, or create it by hand"
	}
	return &Error{Blocked, ReasonUnknownTopic, advise(fmt.Errorf("create the missing topic: %w", refused), next)}
}
