package kafkatx

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// client is a transactional client of the brokers. One goroutine at a time produces and ends transactions.
type client struct {
	*kgo.Client

	mu  sync.Mutex
	met []string // topics that were produced to for the first time since the last commit
}

// meet is called with a topic before its first record has a partition.
func (c *client) meet(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.met = append(c.met, topic)
}

// commit ends the transaction. Every record of it is acknowledged.
//
// A commit raises the producer's epoch, and the client then begins the sequence numbers of all
// partitions that it has stored again. It sends the first records of a topic a moment before it stores
// the topic's partitions (seen in kgo v1.22.3). A commit in between leaves their sequence numbers as
// they are, and brokers refuse the next transaction with OUT_OF_ORDER_SEQUENCE_NUMBER.
func (c *client) commit(ctx context.Context) error {
	c.mu.Lock()
	met := c.met
	c.met = nil
	c.mu.Unlock()
	within, cancel := context.WithTimeout(ctx, time.Second) // what is not stored then costs the next transaction a retry
	defer cancel()
	for _, topic := range met {
		c.awaitPartitions(within, topic)
	}
	return c.EndTransaction(ctx, kgo.TryCommit)
}

// awaitPartitions returns when the client has stored the topic's partitions: within microseconds, as it
// has answers for their records.
func (c *client) awaitPartitions(ctx context.Context, topic string) {
	for ctx.Err() == nil {
		if leader, _, err := c.PartitionLeader(topic, 0); leader >= 0 || err != nil {
			return
		}
		select {
		case <-time.After(50 * time.Microsecond):
		case <-ctx.Done():
		}
	}
}
