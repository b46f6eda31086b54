package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// landing is a record at the brokers.
type landing struct {
	relay int
	at    time.Time
}

// pair is two relays, one slot and the brokers that both write to.
type pair struct {
	server *fakeServer
	held   atomic.Int64 // by which relay, from 1
	sinks  [2]*sinktest.Recorder

	mu     sync.Mutex
	landed []landing
}

func (p *pair) start(t *testing.T, n int) (stop func()) {
	t.Helper()
	routes := outboxRoutes(t)
	open := func(ctx context.Context) (Source, error) {
		if n == 0 && p.server.opens.Load() > 0 {
			return nil, &fault.Error{Kind: fault.KindRetry, Op: "connect", Err: errors.New("connection refused")}
		}
		if !p.held.CompareAndSwap(0, int64(n+1)) {
			return nil, &fault.Error{Kind: fault.KindBusy, Op: "start", Err: errors.New("slot is in use")}
		}
		return p.server.open(ctx)
	}
	fresh := func() (sink.Sink, error) {
		r := p.sinks[n]
		p.sinks[n] = new(sinktest.Recorder)
		r.Decide(func(*record.Record) sinktest.Verdict {
			p.mu.Lock()
			p.landed = append(p.landed, landing{n, time.Now()})
			p.mu.Unlock()
			return sinktest.Verdict{}
		})
		return r, nil
	}
	r := New(Config{}, Parts{Source: open, Router: routes, Sink: fresh}, Events{}, zerolog.Nop())
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- r.Run(ctx) }()
	return func() { cancel(); <-result }
}

// The slot is free for the other relay at the moment in which the first one loses its
// connection: nothing of the first may land after what the second sends.
func TestStandby_SendsBehindWhatTheRelayBeforeItSent(t *testing.T) {
	for name, slow := range map[string]struct {
		answer  time.Duration
		written bool
		lands   int // records of the first relay
	}{
		"not written yet":              {answer: 5 * time.Second},
		"written, answered in time":    {answer: 550 * time.Millisecond, written: true, lands: 2},
		"written, answered too late":   {answer: 5 * time.Second, written: true},
		"answered before the loss too": {},
	} {
		t.Run(name, func(t *testing.T) {
			for offset := range 14 { // of the loss in the interval at which the other one asks
				synctest.Test(t, func(t *testing.T) {
					p := &pair{server: newServer(fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/a/2")), sinks: [2]*sinktest.Recorder{new(sinktest.Recorder), new(sinktest.Recorder)}}
					p.sinks[0].Delay(slow.answer)
					p.sinks[0].Written(slow.written)
					if slow.answer == 0 {
						slow.lands = 2
					}
					begin := time.Now()
					stopFirst := p.start(t, 0)
					pass(time.Millisecond)
					stopSecond := p.start(t, 1)
					pass(time.Millisecond)
					if slow.answer < time.Second {
						pass(time.Duration(offset) * 35 * time.Millisecond)
					} else {
						pass(time.Second + time.Duration(offset)*50*time.Millisecond)
					}
					p.server.cut()
					lost := time.Now()
					p.held.Store(0)
					pass(20 * time.Second)
					stopFirst()
					stopSecond()
					check(t, p.landed, lost, fmt.Sprintf("lost %s after the start", lost.Sub(begin)), slow.lands)
				})
			}
		})
	}
}

func check(t *testing.T, landed []landing, lost time.Time, when string, lands int) {
	t.Helper()
	var first, second int
	for _, l := range landed {
		switch {
		case l.relay == 1:
			second++
			if l.at.Sub(lost) < standbyGrace {
				t.Errorf("%s: the second relay sent %s after the loss", when, l.at.Sub(lost))
			}
		case second > 0:
			t.Errorf("%s: a record of the first relay landed after one of the second", when)
		default:
			first++
		}
	}
	if lands != first {
		t.Errorf("%s: %d records of the first relay landed, want %d", when, first, lands)
	}
	if first+second == 0 {
		t.Errorf("%s: nothing was delivered", when)
	}
}

// What its own earlier session had written cannot come late: the brokers know the producer.
func TestRelay_AloneReconnectsWithoutGivingWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{}, newServer(fixed(110, 120, 1, "order/a/1")))
		pass(time.Second)
		b.server.cut()
		pass(50 * time.Millisecond)
		reconnected := time.Now()
		b.server.more <- fixed(130, 140, 1, "order/a/2")
		pass(time.Millisecond)
		if took := time.Since(reconnected); took >= standbyGrace {
			t.Errorf("the next record was taken after %s", took)
		}
		if got := b.values(); got != "1 2" {
			t.Errorf("delivered %q", got)
		}
		b.stop(t)
	})
}

// All that was sent is acknowledged, but the transaction is not over: its next reading
// sends these rows again.
func TestRelay_CutInMidTransactionIsNotClean(t *testing.T) {
	for name, open := range map[string]bool{"inside": true, "between": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, Config{}, newServer(func() *wal.Batch {
					part := batch(110, 0, 1, "order/a/1", "order/a/2")
					if part.Open = open; !open {
						part.Through = 120
					}
					return part
				}))
				pass(time.Second)
				b.relay.Abort()
				if err := <-b.result; errors.Is(err, ErrDrainCut) != open {
					t.Errorf("run: %v", err)
				}
				if b.values() != "1 2" {
					t.Errorf("delivered %q", b.values())
				}
			})
		})
	}
}

// An outage makes the pauses between tries long. Once the server answers that another
// relay has the slot, the slot is asked for as often as ever.
func TestStandby_AsksForTheSlotSoonAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var busy, free time.Time
		server := newServer(fixed(110, 120, 1, "order/a/1"))
		open := func(ctx context.Context) (Source, error) {
			switch {
			case time.Since(began) < 5*time.Minute:
				return nil, &fault.Error{Kind: fault.KindRetry, Op: "connect", Err: errors.New("connection refused")}
			case busy.IsZero():
				busy = time.Now()
				fallthrough
			case time.Since(busy) < 100*time.Millisecond:
				return nil, &fault.Error{Kind: fault.KindBusy, Op: "start", Err: errors.New("slot is in use")}
			}
			if free.IsZero() {
				free = time.Now()
			}
			return server.open(ctx)
		}
		routes := outboxRoutes(t)
		r := New(Config{}, Parts{Source: open, Router: routes, Sink: func() (sink.Sink, error) { return new(sinktest.Recorder), nil }}, Events{}, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- r.Run(ctx) }()
		pass(6 * time.Minute)
		cancel()
		<-result
		if wait := free.Sub(busy); free.IsZero() || wait > 2*time.Second {
			t.Errorf("the slot was free after 100ms, and was asked for after %s", wait)
		}
	})
}
