package kafkatx

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// producer is a transactional client. One goroutine at a time produces and ends transactions.
type producer struct {
	*kgo.Client

	mu  sync.Mutex
	met []string // topics that were produced to for the first time since the last commit
}

// meet is called with a topic before its first record has a partition.
func (p *producer) meet(topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.met = append(p.met, topic)
}

// commit ends the transaction. Every record of it is acknowledged.
//
// A commit raises the producer's epoch, and the client then begins the sequence numbers of all
// partitions that it has stored again. It sends the first records of a topic a moment before it stores
// the topic's partitions (seen in kgo v1.22.3). A commit in between leaves their sequence numbers as
// they are, and brokers refuse the next transaction with OUT_OF_ORDER_SEQUENCE_NUMBER.
func (p *producer) commit(ctx context.Context) error {
	p.mu.Lock()
	met := p.met
	p.met = nil
	p.mu.Unlock()
	within, cancel := context.WithTimeout(ctx, time.Second) // what is not stored then costs the next transaction a retry
	defer cancel()
	for _, topic := range met {
		p.awaitPartitions(within, topic)
	}
	return p.EndTransaction(ctx, kgo.TryCommit)
}

// awaitPartitions returns when the client has stored the topic's partitions: within microseconds, as it
// has answers for their records.
func (p *producer) awaitPartitions(ctx context.Context, topic string) {
	for ctx.Err() == nil {
		if leader, _, err := p.PartitionLeader(topic, 0); leader >= 0 || err != nil {
			return
		}
		select {
		case <-time.After(50 * time.Microsecond):
		case <-ctx.Done():
		}
	}
}
