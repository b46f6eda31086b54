package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sandbox/ledger"
	"github.com/twmb/franz-go/pkg/kgo"
)

// show is the performance: the order service writes, the relay streams, the
// audience sees and interferes.
type show struct {
	stage *stage
	shop  *shop
	opts  options
	end   context.CancelCauseFunc
	began time.Time

	bursts chan struct{}
	work   sync.WaitGroup

	mu        sync.Mutex
	events    []arrival // the last ones, oldest first
	delivered int
	recent    []moment // the last second's arrivals
	latencies []time.Duration
	status    status.Status
	reachable bool   // the relay's page answered
	note      string // what a key just did
	noted     time.Time
	awayUntil time.Time // the brokers come back
	failed    error
}

// arrival is one event as the consumer saw it.
type arrival struct {
	topic     string
	partition int32
	offset    int64
	key       string
	kind      string
	took      time.Duration
	timed     bool // took is known: the event is the order service's and came for the first time
}

type moment struct {
	at time.Time
	n  int
}

// How much of the past is kept for the screen.
const (
	keptEvents    = 200
	keptLatencies = 2000
	awayFor       = 10 * time.Second
	burstEvents   = 10_000
)

func newShow(s *stage, o options, end context.CancelCauseFunc) *show {
	return &show{
		stage: s, shop: newShop(s.postgres.URL(s.database)), opts: o, end: end, began: time.Now(),
		bursts: make(chan struct{}, 8),
	}
}

// run performs until ctx ends. Afterwards nobody writes any more.
func (s *show) run(ctx context.Context) error {
	regular, err := s.shop.hire(ctx)
	if err != nil {
		return err
	}
	defer regular.close()
	helper, err := s.shop.hire(ctx)
	if err != nil {
		return err
	}
	defer helper.close()
	tail, err := sandbox.NewTail(s.stage.kafka.Addrs(), `^[^_].*`)
	if err != nil {
		return err
	}
	defer tail.Close()

	screen := newScreen(s)
	defer screen.close()
	s.work.Go(func() { s.give(regular.work(ctx, s.opts.rate)) })
	s.work.Go(func() { s.doBursts(ctx, helper) })
	s.work.Go(func() { s.watchTopics(ctx, tail) })
	s.work.Go(func() { s.watchRelay(ctx) })
	screen.run(ctx)
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// give ends the show when a part of it fails.
func (s *show) give(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
	s.end(err)
}

func (s *show) doBursts(ctx context.Context, c *clerk) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.bursts:
			s.give(c.burst(ctx, burstEvents))
		}
	}
}

func (s *show) watchTopics(ctx context.Context, tail *sandbox.Tail) {
	for {
		records, err := tail.Next(ctx)
		if err != nil {
			return
		}
		now := time.Now()
		s.mu.Lock()
		for _, record := range records {
			s.arrived(record, now)
		}
		s.recent = append(s.recent, moment{now, len(records)})
		s.mu.Unlock()
	}
}

func (s *show) arrived(record *kgo.Record, now time.Time) {
	a := arrival{topic: record.Topic, partition: record.Partition, offset: record.Offset, key: string(record.Key)}
	for _, header := range record.Headers {
		if header.Key == "eventType" {
			a.kind = string(header.Value)
		}
	}
	if a.took, a.timed = s.shop.seen(ledger.ID(record), now); a.timed {
		s.latencies = append(s.latencies, a.took)
		if len(s.latencies) > keptLatencies {
			s.latencies = slices.Delete(s.latencies, 0, keptLatencies/2)
		}
	}
	s.delivered++
	s.events = append(s.events, a)
	if len(s.events) > keptEvents {
		s.events = slices.Delete(s.events, 0, keptEvents/2)
	}
}

func (s *show) watchRelay(ctx context.Context) {
	for {
		status, err := s.stage.relay.status(ctx)
		s.mu.Lock()
		s.reachable = err == nil
		if err == nil {
			s.status = status
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// press is what a key does.
func (s *show) press(ctx context.Context, key byte) {
	switch key {
	case 'k', 'K':
		s.stage.kafka.TakeAway(awayFor)
		s.say("the brokers are gone for 10 s: watch the lag grow and drain, in order")
		s.mu.Lock()
		s.awayUntil = time.Now().Add(awayFor)
		s.mu.Unlock()
	case 'r', 'R':
		s.work.Go(func() {
			s.stage.relay.kill()
			s.say("kill -9: the relay goes on from the last confirmed position")
			s.give(s.stage.relay.start())
		})
	case 'b', 'B':
		select {
		case s.bursts <- struct{}{}:
			s.say("10 000 events more")
		default:
			s.say("there are bursts enough under way")
		}
	case 'a', 'A':
		s.work.Go(func() { s.audit(ctx) })
	case 'q', 'Q', 3, 4: // Ctrl-C and Ctrl-D
		s.end(errQuit)
	}
}

func (s *show) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note, s.noted = text, time.Now()
}

// view is everything that the screen shows, at one moment.
type view struct {
	events    []arrival
	committed int
	delivered int
	rate      int // arrivals in the last second
	p50, p99  time.Duration
	status    status.Status
	reachable bool
	note      string
	away      time.Duration
	running   time.Duration
}

func (s *show) snapshot() view {
	committed := s.shop.ledger.Len()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.noted) > awayFor {
		s.note = ""
	}
	for len(s.recent) > 0 && now.Sub(s.recent[0].at) > time.Second {
		s.recent = s.recent[1:]
	}
	v := view{
		events: slices.Clone(s.events), committed: committed, delivered: s.delivered,
		status: s.status, reachable: s.reachable, note: s.note,
		away: max(0, s.awayUntil.Sub(now)), running: now.Sub(s.began),
	}
	for _, m := range s.recent {
		v.rate += m.n
	}
	if len(s.latencies) > 0 {
		sorted := slices.Sorted(slices.Values(s.latencies))
		v.p50, v.p99 = sorted[len(sorted)/2], sorted[len(sorted)*99/100]
	}
	return v
}

// pasteLines are three commands for another terminal.
func (s *show) pasteLines() []string {
	insert := "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', gen_random_uuid(), 'OrderPlaced', '{\"by\": \"hand\"}')"
	return []string{
		fmt.Sprintf(`psql '%s' -c %q`, s.stage.postgres.URL(s.stage.database), insert),
		fmt.Sprintf(`kcat -C -b %s -t order-events -f '%%p:%%o %%k %%h %%s\n'`, s.stage.kafka.Addrs()[0]),
		fmt.Sprintf(`curl http://%s/api/v1/status`, s.stage.http),
	}
}
