package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/twmb/franz-go/pkg/kerr"
)

// repairs is what failures showed to be wrong with the client's idea of the
// cluster. Guarded by Sink.mu.
type repairs struct {
	missing   map[string]struct{} // topics no broker knows
	recreated map[string]struct{} // topics whose id changed
	refresh   bool                // metadata says what may have been corrected since
	replace   bool                // the client holds an error for good
}

// noteRepair keeps what a record's failure says about the client.
func (k *Sink) noteRepair(topic string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		k.broken.missing = added(k.broken.missing, topic)
	case errors.Is(err, kerr.UnknownTopicID):
		k.broken.recreated = added(k.broken.recreated, topic)
	case errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.UnknownServerError), broker.Classify(err).Reason == fault.ReasonKafkaError:
		// A refused InitProducerID stays with the client for ever.
		k.broken.replace = true
	default:
		k.broken.refresh = true
	}
}

// added is the set, which may be nil, with the topic.
func added(set map[string]struct{}, topic string) map[string]struct{} {
	if set == nil {
		set = make(map[string]struct{})
	}
	set[topic] = struct{}{}
	return set
}

// repair makes the client fit for another try. Nothing is buffered in it.
func (k *Sink) repair(ctx context.Context) {
	k.mu.Lock()
	broken := k.broken
	k.broken = repairs{}
	k.mu.Unlock()

	c := k.client.Load()
	deleted := len(broken.recreated) > 0
	k.Topics.Repair(ctx, c.Client, broken.missing, broken.recreated)
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
func (k *Sink) replace(old *client) {
	c, err := k.connect()
	if err != nil {
		k.log.Error().Err(err).Msg("could not start a new kafka client; continuing with the old one")
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
	k.Reach.Reset()
	old.Close()
}
