package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

var errAway = &fault.Error{Kind: fault.KindRetry, Op: "connect", Err: errors.New("connection refused")}

func TestBackoff_StartsAnewAfterASessionThatGotOn(t *testing.T) {
	const sessions = 14
	for name, c := range map[string]struct {
		batches    func(session int) []func() *wal.Batch // what the session brings
		dead       bool                                  // the last position does not reach the server
		lasts      time.Duration
		progressed bool
	}{
		"a row each": {
			batches: func(n int) []func() *wal.Batch {
				at := wal.LSN(1000 + 20*n)
				return []func() *wal.Batch{fixed(at, at+10, 1, "order/a/x")}
			},
			progressed: true,
		},
		"a position without rows each": {
			batches: func(n int) []func() *wal.Batch {
				return []func() *wal.Batch{fixed(0, wal.LSN(1000+20*n), 1)}
			},
			progressed: true,
		},
		"more of one large transaction each": {
			batches: func(n int) []func() *wal.Batch {
				var parts []func() *wal.Batch
				for i := range n + 1 {
					parts = append(parts, fixed(1000, 0, 1+i, "order/a/x"))
				}
				return parts
			},
			progressed: true,
		},
		"nothing, but for long": {
			batches: func(int) []func() *wal.Batch { return nil }, lasts: 31 * time.Second,
			progressed: true,
		},
		"nothing": {
			batches: func(int) []func() *wal.Batch { return nil },
		},
		"the same part of a large transaction": {
			batches: func(int) []func() *wal.Batch {
				return []func() *wal.Batch{fixed(1000, 0, 1, "order/a/x", "order/a/y")}
			},
		},
		"the same row, which the server is not told": {
			batches: func(int) []func() *wal.Batch {
				return []func() *wal.Batch{fixed(1000, 1010, 1, "order/a/x")}
			},
			dead: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opened := make(chan time.Time, 1)
				b := &bench{server: newServer(), sink: new(sinktest.Recorder), result: make(chan error, 1)}
				b.server.origin = wal.Origin{SystemID: "7", Timeline: 1}
				b.server.openErr = func(n int64) error {
					b.server.batches = c.batches(int(n - 1))
					opened <- time.Now()
					return nil
				}
				if c.dead {
					b.server.closeErr = errors.New("connection reset")
				}
				cfg := Config{RetryMin: 200 * time.Millisecond, RetryMax: 30 * time.Second}
				b.start(t, cfg)
				<-opened
				var pauses []time.Duration
				for range sessions {
					pass(max(c.lasts, 50*time.Millisecond))
					lost := time.Now()
					b.server.cut()
					pauses = append(pauses, (<-opened).Sub(lost))
				}
				pass(50 * time.Millisecond)
				b.server.closeErr = nil
				b.stop(t)
				t.Log(pauses)
				if least := slices.Min(pauses); least < cfg.RetryMin/2 {
					t.Errorf("a pause of %s: the server is hammered", least)
				}
				last, most := pauses[sessions-1], slices.Max(pauses)
				if c.progressed && most > cfg.RetryMin+10*time.Millisecond {
					t.Errorf("a pause of %s after a session that got on", most)
				}
				if !c.progressed && last < cfg.RetryMax/2 {
					t.Errorf("the last of %d pauses is %s, though nothing gets on", sessions, last)
				}
			})
		})
	}
}

// glance is a prober that reaches a server or does not.
type glance struct{ away, stops atomic.Bool }

func (g *glance) Read(context.Context) (*watch.Snapshot, error) {
	if g.away.Load() {
		return nil, errAway
	}
	if g.stops.Load() {
		return nil, &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonServerShutdown, Op: "look at the slot", Err: errors.New("the database system is shutting down")}
	}
	return &watch.Snapshot{WALEnd: 900}, nil
}
func (g *glance) Close() {}

func TestBackoff_IsCutShortWhenTheServerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 10 * time.Minute
		p := new(glance)
		p.away.Store(true)
		begin := time.Now()
		var tries []time.Duration
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1), probe: p}
		b.server.openErr = func(int64) error {
			tries = append(tries, time.Since(begin))
			if p.away.Load() {
				return errAway
			}
			return nil
		}
		b.start(t, Config{RetryMax: 5 * time.Minute, ProbeInterval: 5 * time.Second})
		pass(outage)
		p.away.Store(false)
		pass(6 * time.Second)
		st := b.relay.Status()
		b.stop(t)
		if st.State != status.Streaming {
			t.Errorf("%s six seconds after the server was back; tries %v", st.State, tries)
		}
		if len(tries) > 20 {
			t.Errorf("%d tries while it was away", len(tries))
		}
	})
}

// Whoever is looked at without trouble but cannot be streamed from is no sign.
func TestBackoff_IsNotCutShortByAServerThatWasThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(), sink: new(sinktest.Recorder), result: make(chan error, 1), probe: new(glance)}
		b.server.openErr = func(int64) error { return errAway }
		b.start(t, Config{RetryMax: 5 * time.Minute, ProbeInterval: time.Second})
		pass(10 * time.Minute)
		if n := b.server.opens.Load(); n > 20 {
			t.Errorf("%d tries in ten minutes", n)
		}
		b.stop(t)
	})
}

// A sign of life from before a try says nothing about the pause behind it.
func TestBackoff_AnOldSignDoesNotCutAPauseShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(glance)
		p.away.Store(true)
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1), probe: p}
		var away atomic.Bool
		var refused []time.Time
		b.server.openErr = func(n int64) error {
			if away.Load() {
				refused = append(refused, time.Now())
				return errAway
			}
			return nil
		}
		b.start(t, Config{RetryMin: 4 * time.Second, RetryMax: time.Minute, ProbeInterval: time.Second})
		pass(3 * time.Second)
		p.away.Store(false) // seen while a session streams
		pass(3 * time.Second)
		away.Store(true)
		b.server.cut()
		pass(time.Minute)
		b.stop(t)
		for i := 1; i < len(refused); i++ {
			if gap := refused[i].Sub(refused[i-1]); gap < 2*time.Second {
				t.Errorf("tried again after %s", gap)
			}
		}
		if len(refused) < 3 {
			t.Errorf("tries at %s", fmt.Sprint(refused))
		}
	})
}

// A server that stops is let go of quickly when the brokers are unreachable, and given time
// for what is under way when they are there.
func TestProbe_KeepsAStoppingServerWaitingOnlyForBrokersThatAreThere(t *testing.T) {
	for name, c := range map[string]struct {
		brokers error
		atLeast time.Duration
		atMost  time.Duration
	}{
		"brokers there": {nil, 5 * time.Second, 12 * time.Second},
		"brokers away":  {errors.New("dial tcp: connection refused"), 0, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(glance)
				b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1), probe: p}
				b.start(t, Config{ProbeInterval: 5 * time.Second})
				pass(time.Minute)
				b.sink.Hold()
				b.server.more <- fixed(130, 140, 1, "order/a/2") // never acknowledged
				b.sink.SetReachable(c.brokers)
				pass(10*time.Second + time.Millisecond) // just behind a look
				began, reconnects := time.Now(), b.relay.Status().Reconnects
				p.stops.Store(true)
				for b.relay.Status().Reconnects == reconnects && time.Since(began) < time.Minute {
					pass(100 * time.Millisecond)
				}
				if took := time.Since(began); took < c.atLeast || took > c.atMost {
					t.Errorf("the session ended %s after the server began to stop", took)
				}
				p.stops.Store(false)
				b.sink.SetReachable(nil)
				b.sink.Release()
				b.stop(t)
			})
		})
	}
}
