package broker

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// AskProducerID has a client ask the brokers for its producer id, unless it has one. A client needs it before
// it is given its first record: one that is refused the id fails what it has buffered, but not the record
// whose topic it loads at that moment. That record has no outcome until another one is sent (franz-go 1.22.3).
//
// An error is what the client answers every record with from now on, or says that ctx ended. What the client
// tries again by itself, such as brokers that cannot be reached, is none.
func AskProducerID(ctx context.Context, client *kgo.Client) (known bool, err error) {
	_, _, err = client.ProducerID(ctx)
	refused, answered := errors.AsType[*kerr.Error](err)
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case errors.Is(err, kgo.ErrClientClosed), answered && !refused.Retriable && refused != kerr.ConcurrentTransactions:
		return false, err
	}
	return false, nil
}

// Producer gives out a client that can have a producer id, and makes another one where one was refused it.
// It is safe for concurrent use.
type Producer struct {
	connect func() (*kgo.Client, error)

	mu     sync.Mutex
	client *kgo.Client
	closed bool
}

// NewProducer makes the first client, which connects to nothing yet.
func NewProducer(connect func() (*kgo.Client, error)) (*Producer, error) {
	client, err := connect()
	if err != nil {
		return nil, err
	}
	return &Producer{connect: connect, client: client}, nil
}

// Current is the client for anything but records.
func (p *Producer) Current() *kgo.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.client
}

// Client is the client for a record: it has a producer id, or tries again by itself to get one. One call at a time.
func (p *Producer) Client(ctx context.Context) (*kgo.Client, error) {
	client := p.Current()
	_, err := AskProducerID(ctx, client)
	if err == nil {
		return client, nil
	}
	if ctx.Err() == nil {
		p.replace(client)
	}
	return nil, err
}

func (p *Producer) replace(refused *kgo.Client) {
	next, err := p.connect()
	if err != nil {
		return // the next call tries again
	}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.client = next
	}
	p.mu.Unlock()
	if closed {
		refused = next
	}
	refused.Close()
}

// Close gives the connections up.
func (p *Producer) Close() {
	p.mu.Lock()
	p.closed = true
	client := p.client
	p.mu.Unlock()
	client.Close()
}
