package kafka

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/cdc-relay/cdc-relay/sink"
)

var _ sink.Abandoner = (*Sink)(nil)

// Abandon keeps the client and with it the producer id. The client raises the epoch when
// it gives up a batch that was written, and brokers refuse a batch of an older epoch once
// they have one of the newer. They do not compare the epochs of different producer ids: records of
// a new client would arrive among those of the old one in any order. The connections are reset, so that
// nothing waits for the answers to requests that nobody is interested in.
//
// A repair that is due, such as that of a deleted topic, replaces the client all the same.
func (k *Sink) Abandon(ctx context.Context) (fenced bool, err error) {
	writer := k.client.Load()
	k.halt(true)
	k.client.Load().UnsafeAbortBufferedRecords()
	k.conns.reset()
	k.releaseGathered() // which fails
	k.mu.Lock()
	aborted := k.aborted
	k.mu.Unlock()
	for _, wait := range []<-chan struct{}{k.sends.empty(), aborted} {
		select {
		case <-wait:
		case <-ctx.Done():
			return false, fmt.Errorf("abandon records: %w", context.Cause(ctx))
		}
	}
	k.Resume(ctx)
	return k.client.Load() == writer, nil
}

// conns are the open connections of a sink.
type conns struct {
	mu   sync.Mutex
	open map[*conn]struct{}
}

// conn is a connection that leaves the set when it is closed.
type conn struct {
	net.Conn
	of *conns
}

// dial is Config.Dial, and remembers the connection.
func (k *Sink) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := k.cfg.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return k.conns.add(c), nil
}

func (s *conns) add(c net.Conn) *conn {
	kept := &conn{c, s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*conn]struct{})
	}
	s.open[kept] = struct{}{}
	return kept
}

// reset closes all, which discards what they have not delivered.
func (s *conns) reset() {
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close()
	}
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
