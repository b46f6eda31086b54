package topics

import (
	"context"
	"errors"
	"math"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CheckCheckpoints checks the checkpoint topic; a non-empty idPrefix means exactly-once. It never
// opens the transactional id, which would fence a running relay.
func CheckCheckpoints(ctx context.Context, at broker.Connection, topic, idPrefix string) advice.Findings {
	c, err := newChecker(ctx, CheckConfig{Connection: at}, Expected{})
	if err != nil {
		return nil // Check has said so
	}
	defer c.client.Close()
	within, cancel := c.within()
	defer cancel()
	const check = "checkpoint.topic"
	if err := VerifyCheckpointTopic(within, c.admin, topic); err != nil {
		e, _ := errors.AsType[*sink.Error](err)
		if e == nil || e.Class == sink.Retry {
			c.fail(check, "run the check again", "%v", err)
			return c.findings
		}
		seen, next := advice.Split(err)
		if next == "" {
			next = "see the broker's log"
		}
		c.fail(check, next, "%s", seen)
		return c.findings
	}
	c.ok(check, "topic %s has one partition and is compacted, as far as the brokers show its settings", topic)
	c.checkpointRights(topic)
	if idPrefix == "" {
		return c.findings
	}
	c.ok("transactional.id", "its rights cannot be looked at without taking the id over; it begins with %s: %s", idPrefix, GrantTransactions(idPrefix, "prefixed"))
	return c.findings
}

func (c *checker) checkpointRights(topic string) {
	const check = "checkpoint.acl"
	found, err := c.describe([]string{topic})
	if err != nil {
		c.fail(check, "run the check again", "ask for the topic: %v", err)
		return
	}
	allowed := found[topic].AuthorizedOperations
	may := func(op kmsg.ACLOperation) bool { return allowed&(1<<op) != 0 }
	switch {
	case allowed == math.MinInt32, !may(kmsg.ACLOperationDescribe):
		c.ok(check, "topic %s: the brokers do not list the rights of the relay's principal", topic)
	case !may(kmsg.ACLOperationRead), !may(kmsg.ACLOperationWrite):
		c.fail(check, GrantCheckpoints(topic),
			"topic %s: the relay's principal may not both read and write it", topic)
	default:
		c.ok(check, "topic %s: the relay's principal may read and write it", topic)
	}
}
