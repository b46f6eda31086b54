package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/sandbox/ledger"
)

// shop is the order service. Each step of an order changes the order and writes
// its events in one transaction: both happen or neither.
type shop struct {
	url    string
	ledger *ledger.Ledger

	mu        sync.Mutex
	committed map[string]time.Time // by event id, until the event was seen in its topic
}

func newShop(url string) *shop {
	return &shop{url: url, ledger: ledger.New(), committed: map[string]time.Time{}}
}

// order is one open order; the one goroutine that has it writes its events.
type order struct {
	id    uuid.UUID
	total float64
	next  int // index into steps
}

// steps are what happens to an order, one after the other.
var steps = []struct {
	status string
	events []kind
}{
	{"placed", []kind{{"order", "OrderPlaced"}}},
	{"paid", []kind{{"payment", "PaymentReceived"}, {"order", "OrderPaid"}}},
	{"shipped", []kind{{"order", "OrderShipped"}}},
}

type kind struct{ aggregate, event string }

// clerk works through open orders on a connection of its own.
type clerk struct {
	shop *shop
	conn *pgx.Conn
	open []*order
}

// hire opens a clerk's connection.
func (s *shop) hire(ctx context.Context) (*clerk, error) {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return nil, fmt.Errorf("start order service: %w", err)
	}
	return &clerk{shop: s, conn: conn}, nil
}

func (c *clerk) close() { _ = c.conn.Close(context.Background()) }

// work runs transactions at a rate until ctx ends.
func (c *clerk) work(ctx context.Context, rate int) error {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		// A transaction that has begun is finished, so that nobody has to ask later
		// whether its commit arrived.
		if err := c.transact(context.WithoutCancel(ctx), []*order{c.pick()}); err != nil {
			return fmt.Errorf("order service: %w", err)
		}
	}
}

// burst adds events as fast as it can, a hundred orders in a transaction, until
// there are n more or ctx ends.
func (c *clerk) burst(ctx context.Context, n int) error {
	const orders = 100
	perOrder := 0
	for _, step := range steps {
		perOrder += len(step.events)
	}
	for range n / orders / perOrder {
		batch := make([]*order, orders)
		for i := range batch {
			batch[i] = newOrder()
		}
		for range steps {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the demo ends
			}
			if err := c.transact(context.WithoutCancel(ctx), batch); err != nil {
				return fmt.Errorf("burst: %w", err)
			}
		}
	}
	return nil
}

func newOrder() *order {
	return &order{id: uuid.New(), total: float64(rand.IntN(20000)+100) / 100}
}

// pick continues an open order or opens one.
func (c *clerk) pick() *order {
	for i, o := range c.open {
		if o.next == len(steps) {
			c.open = append(c.open[:i], c.open[i+1:]...)
			break
		}
	}
	if len(c.open) < 8 {
		c.open = append(c.open, newOrder())
		return c.open[len(c.open)-1]
	}
	return c.open[rand.IntN(len(c.open))]
}

// transact takes the next step of each order in one transaction.
func (c *clerk) transact(ctx context.Context, orders []*order) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("PostgreSQL does not answer"))
	defer cancel()
	var batch pgx.Batch
	var events []ledger.Event
	for _, o := range orders {
		if o.next == len(steps) {
			continue
		}
		step := steps[o.next]
		batch.Queue("INSERT INTO orders (id, status, total) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET status = excluded.status",
			o.id, step.status, o.total)
		for _, k := range step.events {
			id := uuid.New()
			payload := fmt.Sprintf(`{"order": "%s", "status": "%s", "total": %.2f}`, o.id, step.status, o.total)
			batch.Queue("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, $3, $4, $5)",
				id, k.aggregate, o.id, k.event, payload)
			events = append(events, ledger.Event{ID: id.String(), Topic: k.aggregate + "-events", Key: o.id.String()})
		}
		o.next++
	}
	tx, err := c.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	c.shop.expect(events)
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	c.shop.ledger.Committed(events...)
	return nil
}

// expect notes the time just before the commit: an event may arrive before its
// writer hears that the commit is done.
func (s *shop) expect(events []ledger.Event) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		s.committed[e.ID] = now
	}
}

// seen is the time from commit to now for an event that arrived; the second
// result is false for one that did not come from here, or came before.
func (s *shop) seen(id string, now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known := s.committed[id]
	delete(s.committed, id)
	return max(0, now.Sub(at)), known
}

// adopt enters what others wrote to the outbox: the line to paste invites to it.
func (s *shop) adopt(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return fmt.Errorf("read outbox: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SELECT id::text, aggregate_type || '-events', aggregate_id::text FROM outbox ORDER BY ctid")
	if err != nil {
		return fmt.Errorf("read outbox: %w", err)
	}
	var e ledger.Event
	_, err = pgx.ForEachRow(rows, []any{&e.ID, &e.Topic, &e.Key}, func() error {
		if !s.ledger.Has(e.ID) {
			s.ledger.Committed(e)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read outbox: %w", err)
	}
	return nil
}
