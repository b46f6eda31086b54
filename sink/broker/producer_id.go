package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// askAgain is how long AskProducerID waits before it asks once more.
const askAgain = 100 * time.Millisecond

// AskProducerID has a client ask the brokers for its producer id until they answer, unless it has one. A client
// needs it before it is given its first record: one that is refused the id fails what it has buffered, but not
// the record whose topic it loads at that moment. That record has no outcome until another one is sent
// (franz-go 1.22.3). So it asks again where brokers cannot be reached or are not ready.
//
// It returns the refusal of the brokers, [kgo.ErrClientClosed], or why ctx ended.
func AskProducerID(ctx context.Context, client *kgo.Client) error {
	for {
		_, _, err := client.ProducerID(ctx)
		refused, answered := errors.AsType[*kerr.Error](err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, kgo.ErrClientClosed), answered && !refused.Retriable && refused != kerr.ConcurrentTransactions:
			return err
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ClientWithID gives out a client that can have a producer id, and makes another one where one was refused it.
// It is safe for concurrent use.
type ClientWithID struct {
	connect func() (*kgo.Client, error)

	mu     sync.Mutex
	client *kgo.Client
	closed bool
}

// NewClientWithID makes the first client, which connects to nothing yet.
func NewClientWithID(connect func() (*kgo.Client, error)) (*ClientWithID, error) {
	client, err := connect()
	if err != nil {
		return nil, err
	}
	return &ClientWithID{connect: connect, client: client}, nil
}

// Current is the client for anything but records.
func (c *ClientWithID) Current() *kgo.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client
}

// Client is the client for a record, and has a producer id. One call at a time.
func (c *ClientWithID) Client(ctx context.Context) (*kgo.Client, error) {
	client := c.Current()
	err := AskProducerID(ctx, client)
	if err == nil {
		return client, nil
	}
	if ctx.Err() == nil {
		c.replace(client)
	}
	return nil, err
}

func (c *ClientWithID) replace(refused *kgo.Client) {
	next, err := c.connect()
	if err != nil {
		return // the next call tries again
	}
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.client = next
	}
	c.mu.Unlock()
	if closed {
		refused = next
	}
	refused.Close()
}

// Close gives the connections up.
func (c *ClientWithID) Close() {
	c.mu.Lock()
	c.closed = true
	client := c.client
	c.mu.Unlock()
	client.Close()
}
