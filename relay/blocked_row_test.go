package relay

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// watched is a relay of which every change of state is written down.
type watched struct {
	*bench
	mu      sync.Mutex
	changes []status.State
}

func (w *watched) since() []status.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.changes
	w.changes = nil
	return seen
}

func watchRelay(t *testing.T, cfg Config, server *fakeServer, to sink.Sink, p Prober) *watched {
	t.Helper()
	routes := outboxRoutes(t, cfg.Router)
	server.origin = wal.Origin{SystemID: "7", Timeline: 1}
	w := &watched{bench: &bench{server: server, result: make(chan error, 1)}}
	ev := Events{StateChanged: func(_, to status.State, _ string) {
		w.mu.Lock()
		w.changes = append(w.changes, to)
		w.mu.Unlock()
	}}
	cfg.Replication.Slot, cfg.RetryMax = "s", 5*time.Second
	w.relay = New(cfg, Parts{Source: server.open, Router: routes, Probe: p, Sink: func() (sink.Sink, error) { return to, nil }}, ev, zerolog.Nop())
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel = cancel
	go func() { w.result <- w.relay.Run(ctx) }()
	return w
}

// steady requires the relay to be shown as blocked at every moment of a while.
func (w *watched) steady(t *testing.T, reason string, d time.Duration) {
	t.Helper()
	var since time.Time
	for range int(d / (20 * time.Millisecond)) {
		pass(20 * time.Millisecond)
		st := w.relay.Status()
		if since.IsZero() {
			since = st.Since
		}
		if st.State != status.Blocked || st.Reason != reason || st.Message == "" || st.Ready() || !st.Since.Equal(since) {
			t.Fatalf("%s %s since %s: %s", st.State, st.Reason, st.Since, st.Message)
		}
	}
	if changes := w.since(); len(changes) > 0 {
		t.Fatalf("changes of state: %v", changes)
	}
}

var errLarge = &fault.Error{Kind: fault.KindProtocol, Reason: fault.ReasonRowTooLarge, LSN: 125, Err: errors.New("too large")}

// meets ends each session at a row, at most three seconds after it was opened.
func (w *watched) meets(err error, healed *atomic.Bool, done <-chan struct{}) {
	for met := int64(0); ; {
		select {
		case <-time.After(3 * time.Second):
		case <-done:
			return
		}
		if n := w.server.opens.Load(); n != met && !healed.Load() {
			met = n
			w.server.mu.Lock()
			current := w.server.current
			w.server.mu.Unlock()
			current.fail <- err
		}
	}
}

func TestBlocked_StaysSoUntilASessionReadWhatItCouldNotRead(t *testing.T) {
	for name, err := range map[string]*fault.Error{
		fault.ReasonRowTooLarge: errLarge,
		fault.ReasonUndecodable: {Kind: fault.KindProtocol, Reason: fault.ReasonUndecodable, LSN: 125, Err: errors.New("invalid memory alloc request size")},
		fault.ReasonProtocol:    {Kind: fault.KindProtocol, Op: "decode insert", LSN: 125, Err: errors.New("tuple kind")},
		// The publication is younger than the row.
		fault.ReasonPublicationMissing: {Kind: fault.KindRefused, Reason: fault.ReasonPublicationMissing, LSN: 125, Err: errors.New("does not exist")},
	} {
		for _, guarantee := range []Guarantee{AtLeastOnce, ExactlyOnce} {
			t.Run(name+" "+string(guarantee), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					done := make(chan struct{})
					defer close(done)
					server := newServer(fixed(110, 115, 1, "order/a/1"), fixed(0, 118, 1), fixed(120, 0, 1, "order/a/2"))
					var to sink.Sink = new(sinktest.Recorder)
					if guarantee == ExactlyOnce {
						to = &transactional{l: &ledger{sim: calmSim()}}
					}
					w := watchRelay(t, Config{Guarantee: guarantee}, server, to, nil)
					var healed atomic.Bool
					go w.meets(err, &healed, done)
					pass(4 * time.Second)
					w.since()
					w.steady(t, name, time.Minute)
					if n := server.opens.Load(); n < 5 {
						t.Fatalf("%d sessions", n)
					}
					server.more <- fixed(0, 119, 1) // a keep-alive
					w.steady(t, name, time.Minute)
					healed.Store(true)
					server.more <- fixed(120, 130, 2, "order/a/3") // in a session that goes on
					pass(time.Second)
					if st := w.relay.Status(); st.State != status.Streaming || st.Reason != "" {
						t.Errorf("past the row: %s %s", st.State, st.Reason)
					}
					if changes := w.since(); !slices.Equal(changes, []status.State{status.Streaming}) {
						t.Errorf("changes of state: %v", changes)
					}
					w.stop(t)
				})
			})
		}
	}
}

// An outbox in which nothing happens any more is not called blocked for ever.
func TestBlocked_EndsWhenTheSlotIsPastTheEndOfTheWAL(t *testing.T) {
	for name, moved := range map[string]bool{"by keep-alives": false, "by its start": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				done := make(chan struct{})
				defer close(done)
				p := new(probe)
				p.snapshot.Store(&watch.Snapshot{WALEnd: 400})
				server := newServer(fixed(110, 115, 1, "order/a/1"))
				w := watchRelay(t, Config{}, server, new(sinktest.Recorder), p)
				var healed atomic.Bool
				go w.meets(errLarge, &healed, done)
				pass(4 * time.Second)
				w.since()
				w.steady(t, fault.ReasonRowTooLarge, time.Minute)
				healed.Store(true)
				if moved {
					server.report(400)
					server.cut()
					pass(6 * time.Second)
				} else {
					server.more <- fixed(0, 400, 1)
					pass(time.Second)
				}
				if st := w.relay.Status(); st.State != status.Streaming {
					t.Errorf("%s %s", st.State, st.Reason)
				}
				w.stop(t)
			})
		})
	}
}

func calmSim() *sim {
	s := newSim(1)
	s.calm = true
	return s
}

// The connection is lost while a row waits. Until a session has delivered it, the relay
// is blocked, and says so when it is not connected either.
func TestBlocked_OutlivesTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		row    string
		reason string
	}{
		"refused by the router":  {"/a/bad", fault.ReasonRoute},
		"refused by the brokers": {"order/a/bad", "record_too_large"},
		"nowhere to go":          {"order/a/bad", "unknown_topic"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var healed atomic.Bool
				row := func() *wal.Batch {
					if healed.Load() {
						return batch(130, 140, 1, "order/a/2", "order/a/3", "order/a/4")
					}
					return batch(130, 140, 1, "order/a/2", c.row, "order/a/4")
				}
				server := newServer(fixed(110, 120, 1, "order/a/1"))
				to := new(sinktest.Recorder)
				to.Decide(func(r *record.Record) sinktest.Verdict {
					class := sink.Rejected
					if c.reason == "unknown_topic" {
						class = sink.Blocked
					}
					if string(r.Value) == "bad" {
						return sinktest.Fail(class, c.reason, errors.New("refused"))
					}
					return sinktest.Verdict{}
				})
				w := watchRelay(t, Config{}, server, to, nil)
				pass(time.Second)
				server.more <- row
				pass(time.Second)
				w.since()
				w.steady(t, c.reason, 10*time.Second)
				for range 3 {
					server.cut()
					pass(10 * time.Millisecond)
					if st := w.relay.Status(); st.SourceConnected || !strings.Contains(st.Message, "refused") && !strings.Contains(st.Message, "route row") || !strings.Contains(st.Message, "connection reset") {
						t.Fatalf("between sessions: %s", st.Message)
					}
					pass(10 * time.Second) // the new session does not bring the row yet
					w.steady(t, c.reason, time.Second)
					server.more <- row
					pass(5 * time.Second)
					w.steady(t, c.reason, time.Second)
				}
				healed.Store(true)
				server.cut()
				pass(10 * time.Second)
				if st := w.relay.Status(); st.State != status.Blocked {
					t.Errorf("before the row: %s", st.State)
				}
				to.Hold()
				server.more <- row
				pass(time.Second)
				if st := w.relay.Status(); st.State != status.Blocked {
					t.Errorf("before it is durable: %s", st.State)
				}
				to.Release()
				pass(time.Second)
				if st := w.relay.Status(); st.State != status.Streaming || st.Reason != "" {
					t.Errorf("past the row: %s %s", st.State, st.Reason)
				}
				w.stop(t)
			})
		})
	}
}

// A relay that stands by is no longer the one that waits at the row.
func TestBlocked_EndsWithTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Bool
		server := newServer(fixed(110, 120, 1, "order/a/1"))
		server.openErr = func(int64) error {
			if busy.Load() {
				return &fault.Error{Kind: fault.KindBusy, Reason: fault.ReasonSlotInUse, Err: errors.New("another relay has it")}
			}
			return nil
		}
		w := watchRelay(t, Config{}, server, new(sinktest.Recorder), nil)
		pass(time.Second)
		server.more <- fixed(130, 140, 1, "/a/bad")
		pass(time.Second)
		w.since()
		busy.Store(true)
		server.cut()
		pass(10 * time.Second)
		if st := w.relay.Status(); st.State != status.Standby || !slices.Equal(w.since(), []status.State{status.Standby}) {
			t.Errorf("while another relay has the slot: %s %s", st.State, st.Reason)
		}
		busy.Store(false)
		pass(10 * time.Second) // the row is still ahead
		if !slices.Equal(w.since(), []status.State{status.Blocked}) {
			t.Errorf("with the slot again: %s", w.relay.Status().State)
		}
		w.stop(t)
	})
}

func TestBlocked_OutlivesTheSessionsOfExactlyOnce(t *testing.T) {
	for row, reason := range map[string]string{"/a/x": fault.ReasonRoute, "order/bad/x": "record_too_large", "order/nowhere/x": "unknown_topic"} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var healed atomic.Bool
				both := func() *wal.Batch {
					spec := row
					if healed.Load() {
						spec = "order/a/x"
					}
					return several(fixed(130, 140, 1, "order/a/2"), fixed(150, 160, 1, "order/a/3", spec, "order/a/4"))()
				}
				server, l := newServer(fixed(110, 120, 1, "order/a/1")), &ledger{sim: calmSim()}
				server.skipConfirmed = true
				w := watchRelay(t, Config{Guarantee: ExactlyOnce}, server, prompt{&transactional{l: l}}, nil)
				pass(time.Second)
				server.more <- both
				pass(2 * time.Second)
				w.since()
				for range 3 {
					w.steady(t, reason, 10*time.Second) // the new session does not bring the rows yet
					server.more <- both
				}
				w.steady(t, reason, 10*time.Second)
				// Of a topic that is missing the fake says no row.
				if got := l.rows(); reason != "unknown_topic" && !slices.Equal(got, []string{"a/1", "a/2"}) {
					t.Errorf("committed %q, want what is before the row's transaction", got)
				}
				healed.Store(true)
				server.more <- both
				pass(time.Second)
				if st := w.relay.Status(); st.State != status.Streaming {
					t.Errorf("past the row: %s %s", st.State, st.Reason)
				}
				w.stop(t)
				if got := l.rows(); !slices.Equal(got, []string{"a/1", "a/2", "a/3", "a/x", "a/4"}) {
					t.Errorf("committed %q", got)
				}
			})
		})
	}
}

// prompt ends a transaction where it is told to do so at once.
type prompt struct{ *transactional }

func (p prompt) SetPosition(m sink.Position) {
	p.transactional.SetPosition(m)
	if m.Now {
		pass(50 * time.Millisecond)
	}
}

func (l *ledger) rows() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.committed)
}

// What heals by itself is not remembered.
func TestBlocked_ByBrokersForAWhileEndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(fixed(110, 120, 1, "order/a/1"))
		to := new(sinktest.Recorder)
		to.Decide(func(r *record.Record) sinktest.Verdict {
			if string(r.Value) == "2" {
				return sinktest.Fail(sink.Retry, "not_leader", errors.New("not now"))
			}
			return sinktest.Verdict{}
		})
		w := watchRelay(t, Config{}, server, to, nil)
		pass(time.Second)
		server.more <- fixed(130, 140, 1, "order/a/2")
		pass(time.Second)
		if st := w.relay.Status(); st.State != status.Blocked || st.Reason != "not_leader" {
			t.Fatalf("%s %s", st.State, st.Reason)
		}
		server.cut()
		pass(10 * time.Second)
		if st := w.relay.Status(); st.State != status.Streaming {
			t.Errorf("in the next session: %s %s", st.State, st.Reason)
		}
		w.stop(t)
	})
}

// What is sent before a row that waits may have troubles of its own.
func TestBlocked_StaysSoWhileWhatIsBeforeTheRowIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		to := new(sinktest.Recorder)
		to.Decide(func(*record.Record) sinktest.Verdict {
			if time.Since(began) < 10*time.Second {
				return sinktest.Fail(sink.Retry, "not_leader", errors.New("not now"))
			}
			return sinktest.Verdict{}
		})
		w := watchRelay(t, Config{}, newServer(fixed(110, 120, 1, "order/a/1", "order/a/2", "/a/bad")), to, nil)
		pass(30 * time.Second)
		if changes := w.since(); changes[0] != status.Streaming || slices.Contains(changes[1:], status.Streaming) {
			t.Errorf("changes of state: %v", changes)
		}
		w.steady(t, fault.ReasonRoute, time.Minute)
		w.stop(t)
	})
}

// One session reads more than another before the row ends it.
func TestBlocked_IsMeasuredByTheSessionThatReadMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(fixed(110, 120, 1, "order/a/1"))
		to := new(sinktest.Recorder)
		w := watchRelay(t, Config{MaxInFlightBytes: 1}, server, to, nil)
		part := func(n int) func() *wal.Batch { return fixed(200, 0, n, "order/a/x") }
		pass(time.Second)
		to.Hold()
		for n := 1; n <= 4; n++ { // one on its way, one that waits for room, two that nobody took
			server.more <- part(n)
		}
		pass(time.Second)
		end := func(err error) {
			server.mu.Lock()
			current := server.current
			server.mu.Unlock()
			current.fail <- err
			pass(8 * time.Second)
		}
		end(errLarge)
		to.Release()
		pass(10 * time.Second)
		w.since()
		server.more <- part(1)
		w.steady(t, fault.ReasonRowTooLarge, time.Second)
		end(errLarge) // before it read as much
		for n := 1; n <= 4; n++ {
			server.more <- part(n)
			w.steady(t, fault.ReasonRowTooLarge, time.Second)
		}
		server.more <- part(5)
		pass(time.Second)
		if st := w.relay.Status(); st.State != status.Streaming {
			t.Errorf("past the row: %s %s", st.State, st.Reason)
		}
		w.stop(t)
	})
}

// On another timeline other rows have its positions.
func TestBlocked_IsOfOneHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(fixed(110, 120, 1, "order/a/1"))
		w := watchRelay(t, Config{}, server, new(sinktest.Recorder), nil)
		pass(time.Second)
		server.more <- fixed(130, 140, 1, "/a/bad")
		pass(time.Second)
		w.since()
		w.steady(t, fault.ReasonRoute, 10*time.Second)
		server.mu.Lock()
		server.origin = wal.Origin{SystemID: "7", Timeline: 2, Forks: []wal.Fork{{Timeline: 1, At: 125}}}
		server.mu.Unlock()
		server.cut()
		pass(10 * time.Second)
		if st := w.relay.Status(); st.State != status.Streaming {
			t.Errorf("behind a fork before the row: %s %s", st.State, st.Reason)
		}
		w.stop(t)
	})
}

// With position headers a large transaction is read through without being taken.
func TestBlocked_CountsWhatIsReadThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(fixed(110, 120, 1, "order/a/1"))
		w := watchRelay(t, Config{MaxInFlightBytes: 1250, Router: router.Config{PositionHeaders: true}}, server, new(sinktest.Recorder), nil)
		part := func(n, bytes int) func() *wal.Batch {
			return func() *wal.Batch {
				b := batch(200, 0, n, "order/a/x")
				b.Bytes, b.Open = bytes, true
				return b
			}
		}
		pass(time.Second)
		for n := 1; n <= 3; n++ {
			server.more <- part(n, 2000)
		}
		synctest.Wait()
		server.current.fail <- errLarge
		pass(8 * time.Second)
		w.since()
		for n := 1; n <= 3; n++ {
			server.more <- part(n, 100)
			w.steady(t, fault.ReasonRowTooLarge, time.Second)
		}
		w.cancel()
		<-w.result
	})
}
