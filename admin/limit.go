package admin

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
)

// topicLimit is what was read of a topic last, so that open pages ask the brokers once in a while.
type topicLimit struct {
	topic string
	at    time.Time
	bytes int // 0: they did not say
}

const (
	limitFresh    = 30 * time.Second
	limitPatience = 3 * time.Second
)

// topicLimit is what the topic takes of a record that it refused; nil: it is about something else, or the
// brokers do not say.
func (c *Console) topicLimit(ctx context.Context, now time.Time, o *status.Obstacle) *int {
	if o.Reason != fault.ReasonRecordTooLarge || o.Row == nil || o.Row.Topic == "" || o.Row.Limit > 0 || c.tools.TopicLimit == nil {
		return nil
	}
	c.mu.Lock()
	known := c.limit
	fresh := known.topic == o.Row.Topic && now.Sub(known.at) < limitFresh
	if !fresh { // others have what is known meanwhile
		c.limit = topicLimit{topic: o.Row.Topic, at: now}
	}
	c.mu.Unlock()
	if !fresh {
		ctx, cancel := context.WithTimeout(ctx, limitPatience)
		defer cancel()
		known.bytes = 0
		if bytes, err := c.tools.TopicLimit(ctx, o.Row.Topic); err == nil {
			known.bytes = bytes
		}
		c.mu.Lock()
		c.limit.bytes = known.bytes
		c.mu.Unlock()
	}
	if known.bytes == 0 {
		return nil
	}
	return &known.bytes
}
