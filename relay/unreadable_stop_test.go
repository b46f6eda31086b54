package relay

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// A row that cannot be read blocks the relay in session after session, and a stop comes in a
// session or between two. Its outcome is the same: nothing is in flight, and the status says what
// comes again.
func TestStop_WhileBlockedAtARowThatCannotBeReadIsClean(t *testing.T) {
	begun := open(fixed(130, 0, 1, "order/a/2", "order/b/3"))
	fail := func(b *bench) {
		b.server.mu.Lock()
		current := b.server.current
		b.server.mu.Unlock()
		current.fail <- errLarge
	}
	// next has the next session end otherwise.
	next := func(b *bench, wrap func(*fakeSource) Source, batches ...func() *wal.Batch) {
		b.server.mu.Lock()
		b.server.wrap, b.server.batches = wrap, batches
		b.server.mu.Unlock()
		fail(b)
		pass(2 * time.Second)
	}
	for name, stop := range map[string]func(b *bench){
		"between two sessions":                 func(b *bench) { fail(b); pass(time.Millisecond); b.cancel() },
		"before the session has read anything": func(b *bench) { next(b, nil); b.cancel() },
		"while the session reads on to the row": func(b *bench) {
			next(b, func(s *fakeSource) Source { return lastWords{s, errLarge} }, begun)
			b.cancel()
		},
		"when it reads the row in its last batch": func(b *bench) { next(b, func(s *fakeSource) Source { return lastWords{s, errLarge} }); b.cancel() },
		"while what lies before is delivered": func(b *bench) {
			b.sink.Hold()
			b.server.more <- open(fixed(130, 0, 3, "order/a/4"))
			fail(b)
			pass(time.Millisecond)
			b.cancel()
			pass(time.Millisecond)
			b.sink.Release()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(fixed(110, 120, 1, "order/a/1"), begun)
				server.origin = wal.Origin{SystemID: "1", Timeline: 1}
				b := start(t, Config{RetryMin: 10 * time.Millisecond}, server)
				for range 3 {
					pass(2 * time.Second)
					fail(b)
				}
				pass(2 * time.Second)
				if st := b.relay.Status(); st.State != status.Blocked || st.EventsToRepeat != 2 {
					t.Errorf("blocked: %s, %d to repeat", st.State, st.EventsToRepeat)
				}
				stop(b)
				if err := <-b.result; err != nil {
					t.Errorf("run: %v", err)
				}
				again := len(b.sink.Delivered()) - 1
				if st := b.relay.Status(); st.EventsToRepeat != again || server.position() != 120 {
					t.Errorf("stopped: %d to repeat, want %d; confirmed %s", st.EventsToRepeat, again, server.position())
				}
			})
		})
	}
}

// What was told to come again is not, once the transaction is confirmed.
func TestStop_CountsNothingAgainOfATransactionThatWasReadAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := open(fixed(130, 0, 1, "order/a/2", "order/b/3"))
		server := newServer(fixed(110, 120, 1, "order/a/1"), begun)
		server.origin = wal.Origin{SystemID: "1", Timeline: 1}
		b := start(t, Config{RetryMin: 10 * time.Millisecond}, server)
		pass(2 * time.Second)
		server.current.fail <- errLarge
		pass(2 * time.Second)
		server.more <- fixed(130, 140, 3, "order/a/4") // the limit was raised
		pass(time.Second)
		b.stop(t)
		if st := b.relay.Status(); st.EventsToRepeat != 0 || server.position() != 140 || b.values() != "1 2 3 4" {
			t.Errorf("%d to repeat; confirmed %s; delivered %q", st.EventsToRepeat, server.position(), b.values())
		}
	})
}

// With exactly-once the beginning of the row's transaction is aborted, so nothing that readers see comes
// again.
func TestExactlyOnce_AStopAtARowThatCannotBeReadIsClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{sim: calmSim()}
		server := newServer(fixed(110, 120, 1, "order/a/1"), open(fixed(130, 0, 1, "order/a/2")))
		server.skipConfirmed = true
		server.wrap = func(s *fakeSource) Source { return lastWords{s, errLarge} }
		w := watchRelay(t, Config{Guarantee: ExactlyOnce}, server, &transactional{l: l}, nil)
		pass(8 * time.Second)
		w.cancel()
		if err := <-w.result; err != nil || len(l.rows()) > 1 {
			t.Errorf("run: %v; committed %q", err, l.rows())
		}
	})
}

// A row before the unreadable one that was not acknowledged is in flight still.
func TestStop_AtARowThatCannotBeReadIsCutWhereOneBeforeItIsNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(open(fixed(130, 0, 1, "order/a/2")))
		server.wrap = func(s *fakeSource) Source { return lastWords{s, errLarge} }
		b := &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		b.start(t, Config{DrainTimeout: 5 * time.Second})
		pass(2 * time.Second)
		b.cancel()
		if err := fmt.Sprint(<-b.result); err == "<nil>" {
			t.Errorf("run: %s", err)
		}
	})
}
