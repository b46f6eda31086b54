package topics

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// named reports whether fetches have the id of their topic.
func (f *Follower) named() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id != kadm.TopicID{}
}

// lookAgain is how often a topic without an id is looked at while nothing comes.
const lookAgain = 2 * time.Second

// poll returns what comes. Where fetches have no id of the topic it returns after a while with nothing.
func (f *Follower) poll(ctx context.Context, client *kgo.Client) kgo.Fetches {
	if f.named() || !f.last.Any() {
		return client.PollFetches(ctx)
	}
	return pollFor(ctx, client, lookAgain)
}

// recreated reports, where fetches have no id, whether the topic was recreated behind what was visited.
// It asks until it knows, or ctx ends: what was fetched must not be visited before.
func (f *Follower) recreated(ctx context.Context, client *kgo.Client, failed error) bool {
	var lost *kgo.ErrDataLoss
	switch {
	case f.named():
		return false
	case errors.As(failed, &lost): // the client continues at another offset
		return true
	}
	for tries := 0; ; tries++ {
		gone, err := f.last.Gone(ctx, client, f.topic)
		if err != nil || tries > 0 {
			f.mu.Lock()
			f.err = err
			f.changed()
			f.mu.Unlock()
		}
		if err == nil {
			return gone
		}
		select {
		case <-time.After(broker.MetadataMinAge):
		case <-ctx.Done():
			return false
		}
	}
}
