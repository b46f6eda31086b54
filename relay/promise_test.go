package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// fakeLedger is a topic that lasts longer than the relays that write to it.
type fakeLedger struct {
	mu     sync.Mutex
	values map[string][]byte
	fail   error
	writes int
}

func (l *fakeLedger) Close() {}

func (l *fakeLedger) Read(_ context.Context, suffix string) (map[string][]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := maps.Clone(l.values)
	maps.DeleteFunc(found, func(key string, _ []byte) bool { return !strings.HasSuffix(key, suffix) })
	return found, l.fail
}

func (l *fakeLedger) Write(_ context.Context, key string, value []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return l.fail
	}
	l.writes++
	if value == nil {
		delete(l.values, key)
		return nil
	}
	l.values[key] = value
	return nil
}

func (l *fakeLedger) failing(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

// highest is the highest position of the slot that may have been confirmed.
func (l *fakeLedger) highest(t *testing.T) (end wal.LSN) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, value := range l.values {
		if !strings.Contains(key, " for ") { // of another kind
			continue
		}
		rec, err := stored.ParsePosition(value)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		end = max(end, rec.End)
	}
	return end
}

func newLedger() *fakeLedger { return &fakeLedger{values: make(map[string][]byte)} }

// guarded starts a relay with a ledger on a server.
func guarded(t *testing.T, l *fakeLedger, server *fakeServer) *bench {
	t.Helper()
	if server.origin.SystemID == "" {
		server.origin = wal.Origin{SystemID: "7", Timeline: 1}
	}
	b := &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1), ledger: l}
	return b.start(t, Config{Replication: postgres.Config{Slot: "s"}})
}

func TestPromise_NothingIsConfirmedThatIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server := newLedger(), newServer(fixed(110, 120, 1, "order/a/1"))
		b := guarded(t, l, server)
		pass(time.Second)
		if got := server.position(); got != 120 || l.highest(t) < 120 {
			t.Fatalf("confirmed %s, written %s", got, l.highest(t))
		}
		limit := l.highest(t)
		l.failing(&sink.Error{Class: sink.Retry, Reason: "network", Err: errors.New("no broker")})
		server.more <- fixed(limit+10, limit+20, 2, "order/a/2")
		pass(10 * time.Second)
		if got := server.position(); got > limit {
			t.Fatalf("confirmed %s, and only %s was written", got, limit)
		}
		if got := b.values(); got != "1 2" {
			t.Fatalf("delivered %q", got)
		}
		l.failing(nil)
		pass(2 * time.Second)
		if got := server.position(); got != limit+20 {
			t.Fatalf("confirmed %s once it could be written, want %s", got, limit+20)
		}
		b.stop(t)
	})
}

// A clean stop tells the server everything, however short it is after the last row.
func TestPromise_ACleanStopConfirmsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(fixed(1110, 1120, 1, "order/a/1"))
		b := guarded(t, newLedger(), server)
		synctest.Wait()
		b.stop(t)
		if got := server.position(); got != 1120 {
			t.Fatalf("confirmed %s, want 0/460", got)
		}
	})
}

// What could not be written was not confirmed, and comes again.
func TestPromise_AStopThatCannotWriteIsNotClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server := newLedger(), newServer()
		b := guarded(t, l, server)
		pass(time.Second)
		l.failing(&sink.Error{Class: sink.Retry, Reason: "network", Err: errors.New("no broker")})
		server.more <- fixed(1110, 1120, 1, "order/a/1")
		pass(time.Second)
		b.cancel()
		if err := <-b.result; !errors.Is(err, ErrDrainCut) || b.values() != "1" || server.position() >= 1120 {
			t.Fatalf("run: %v, delivered %q, confirmed %s", err, b.values(), server.position())
		}
	})
}

func TestPromise_ASlotThatWasMovedIsNotStreamedFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server := newLedger(), newServer(fixed(110, 120, 1, "order/a/1"))
		b := guarded(t, l, server)
		pass(time.Second)
		b.stop(t)
		server.report(l.highest(t) + 1) // somebody, while no relay has it
		b = guarded(t, l, server)
		err := <-b.result
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Reason != fault.ReasonSlotAhead || !strings.Contains(err.Error(), "accept-gap") {
			t.Fatalf("the start ended with: %v", err)
		}
	})
}

// What is read, in flight or known of the server but not acknowledged is not confirmed,
// so a slot that is moved over it skips rows.
func TestPromise_ASlotThatWasMovedOverABacklogIsNotStreamedFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server := newLedger(), newServer(fixed(110, 120, 1, "order/a/1"))
		b := guarded(t, l, server)
		pass(time.Second)
		b.sink.Hold()
		server.more <- fixed(200, 210, 1, "order/a/2")
		pass(time.Second)
		b.relay.Abort()
		if err := <-b.result; !errors.Is(err, ErrDrainCut) {
			t.Fatalf("cut short: %v", err)
		}
		server.report(210) // and the server's WAL ends at 1000
		b = guarded(t, l, server)
		pass(time.Second)
		select {
		case err := <-b.result:
			if !strings.Contains(fmt.Sprint(err), "accept-gap") {
				t.Errorf("the start ended with: %v", err)
			}
		default:
			t.Errorf("it streams from %s, and what was delivered ends at 0/78", server.position())
			b.stop(t)
		}
	})
}

// Relays follow each other; each takes back what the one before wrote.
func TestPromise_IsHandedOnAndKeptSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server := newLedger(), newServer(fixed(110, 120, 1, "order/a/1"))
		for range 5 {
			b := guarded(t, l, server)
			pass(time.Second)
			b.stop(t)
		}
		if len(l.values) != 2 { // the position, and which tables are streamed
			t.Fatalf("%d keys", len(l.values))
		}
		if got := server.position(); got != 120 {
			t.Fatalf("confirmed %s", got)
		}
		// What a frozen relay writes late, with a lower position, is no alarm.
		late := stored.Position{System: "7", Timeline: 1, Slot: "s", End: 105}
		if err := l.Write(t.Context(), stored.PromiseKey("frozen", "7", "s"), late.Encode()); err != nil {
			t.Fatal(err)
		}
		b := guarded(t, l, server)
		pass(time.Second)
		b.stop(t)
	})
}

func TestPromise_AQuietStreamWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		b := guarded(t, l, newServer(fixed(110, 120, 1, "order/a/1")))
		pass(time.Second)
		before := l.writes
		pass(10 * time.Minute)
		if l.writes != before {
			t.Fatalf("%d writes while nothing happened", l.writes-before)
		}
		b.stop(t)
	})
}

func TestPromise_IsOfOneHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server := newLedger(), newServer()
		server.origin = wal.Origin{SystemID: "7", Timeline: 3}
		rec := stored.Position{System: "7", Timeline: 4, Slot: "s", End: 500}
		if err := l.Write(t.Context(), stored.PromiseKey("x", "7", "s"), rec.Encode()); err != nil {
			t.Fatal(err)
		}
		b := guarded(t, l, server)
		pass(time.Minute)
		if st := b.relay.Status(); st.State != status.Reconnecting || st.Reason != fault.ReasonStalePrimary {
			t.Fatalf("with a server on an older timeline: %s %s", st.State, st.Reason)
		}
		b.stop(t)
	})
}

// Two standbys may be promoted from one history and give their timelines the same number.
func TestPromise_KnowsAnotherTimelineOfTheSameNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server := newLedger(), newServer(fixed(110, 120, 1, "order/a/1"))
		server.origin = wal.Origin{SystemID: "7", Timeline: 2, Forks: []wal.Fork{{Timeline: 1, At: 50}}}
		b := guarded(t, l, server)
		pass(time.Second)
		b.stop(t)
		server.origin.Forks = []wal.Fork{{Timeline: 1, At: 60}}
		b = guarded(t, l, server)
		if err := <-b.result; postgres.Reason(err) != fault.ReasonForeignTimeline {
			t.Errorf("ended with %v", err)
		}
	})
}

// The server's disk was put back: what was promised of WAL that is gone would hide a move of the slot.
func TestPromise_IsNotBeyondTheServersWAL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server := newLedger(), newServer(fixed(110, 120, 1, "order/a/1"))
		rec := stored.Position{System: "7", Timeline: 1, Slot: "s", End: 5000}
		if err := l.Write(t.Context(), stored.PromiseKey("x", "7", "s"), rec.Encode()); err != nil {
			t.Fatal(err)
		}
		b := guarded(t, l, server)
		pass(time.Second)
		b.stop(t)
		if end := l.highest(t); end > 1000 { // where the fake server's WAL ends
			t.Errorf("the slot may be at %s", end)
		}
	})
}

// A right that is taken away ends the session also where Send waits for the brokers.
func TestPromise_ARefusalEndsASessionThatWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server := newLedger(), newServer(fixed(110, 120, 1, "order/a/1"))
		b := guarded(t, l, server)
		pass(time.Second + 50*time.Millisecond) // both rows come between two raises of the promise
		l.failing(&sink.Error{Class: sink.Blocked, Reason: "topic_authorization_failed", Err: errors.New("not allowed")})
		server.more <- fixed(130, 140, 1, "order/a/2")
		synctest.Wait()
		b.sink.Room(1)
		b.sink.Hold()
		server.more <- fixed(150, 160, 1, "order/a/3", "order/a/4", "order/a/5")
		pass(30 * time.Second)
		if st := b.relay.Status(); st.State != status.Blocked || st.Reason != "topic_authorization_failed" {
			t.Errorf("%s %s", st.State, st.Reason)
		}
		l.failing(nil)
		b.sink.Release()
		pass(time.Minute)
		if got := server.position(); b.relay.Status().State != status.Streaming || got < 120 {
			t.Errorf("%s, confirmed %s", b.relay.Status().State, got)
		}
		b.stop(t)
	})
}

// What a change of the publication left out of the stream is in the table alone, and the position
// is ahead of it: nobody may take the slot's rows for delivered.
func TestRelay_ADriftTakesBackWhatIsKnownOfTheTable(t *testing.T) {
	for name, away := range map[string]bool{"the brokers answer": false, "the brokers are unreachable for a moment": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLedger()
				record := func(system, slot string) string {
					rec := stored.BeforeSlot{System: system, Timeline: 1, Slot: slot, Table: "public.outbox", OID: outbox.OID, Before: stored.BeforeNone, Point: 0x64, Positions: stored.Promises, At: time.Unix(1, 0)}
					key := stored.BeforeSlotKey(system, slot, outbox.OID)
					l.values[key] = rec.Encode()
					return key
				}
				key, others := record("7", "s"), []string{record("7", "other"), record("8", "s")}
				known := func(key string) bool {
					l.mu.Lock()
					defer l.mu.Unlock()
					rec, err := stored.ParseBeforeSlot(l.values[key])
					if err != nil {
						t.Fatal(err)
					}
					return rec.Before.Known()
				}
				p := new(probe)
				p.snapshot.Store(&watch.Snapshot{WALEnd: 900})
				server := newServer(fixed(110, 120, 1, "order/a/1"))
				server.origin = wal.Origin{SystemID: "7", Timeline: 1}
				b := &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1), ledger: l, probe: p}
				b.start(t, Config{Replication: postgres.Config{Slot: "s"}})
				pass(time.Minute)
				if !known(key) {
					t.Fatal("nothing happened yet")
				}
				if away {
					l.failing(&sink.Error{Class: sink.Retry, Reason: "network", Err: errors.New("no broker")})
				}
				p.snapshot.Store(&watch.Snapshot{WALEnd: 900, Drift: &fault.Error{Kind: fault.KindDrift, Op: "check publication", Err: errors.New("table is gone")}})
				pass(6 * time.Second)
				l.failing(nil)
				if away {
					pass(time.Minute)
				}
				b.cancel()
				<-b.result
				if known(key) {
					t.Error("the rows of the slot are still taken for delivered")
				}
				for _, other := range others {
					if !known(other) {
						t.Errorf("%s is another slot's", other)
					}
				}
			})
		})
	}
}

// A relay passes over the rows of a table that its configuration does not have, and the slot with it.
// So it takes back what is known of them before it confirms anything.
func TestRelay_TakesBackWhatIsKnownOfATableThatItDoesNotHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server := newLedger(), newServer(fixed(110, 120, 1, "order/a/1"))
		rec := stored.BeforeSlot{System: "7", Timeline: 1, Slot: "s", Before: stored.BeforeSent, Point: 0x64, Positions: stored.Promises, At: time.Unix(1, 0)}
		known := func(oid uint32) bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			found, err := stored.ParseBeforeSlot(l.values[stored.BeforeSlotKey("7", "s", oid)])
			if err != nil {
				t.Fatal(err)
			}
			return found.Before.Known()
		}
		absent := outbox.OID + 1
		for _, oid := range []uint32{outbox.OID, absent} {
			rec.OID = oid
			l.values[stored.BeforeSlotKey("7", "s", oid)] = rec.Encode()
		}
		l.failing(&sink.Error{Class: sink.Retry, Reason: "network", Err: errors.New("no broker")})
		b := guarded(t, l, server)
		pass(10 * time.Second)
		if got := server.position(); got >= 120 || !known(absent) {
			t.Errorf("confirmed %s while it could not be taken back", got)
		}
		l.failing(nil)
		pass(time.Minute)
		if got := server.position(); got != 120 || known(absent) || !known(outbox.OID) {
			t.Errorf("confirmed %s; known of the absent table: %t, of the other: %t", got, known(absent), known(outbox.OID))
		}
		b.stop(t)
	})
}

// Whoever streamed before may have lacked a table. What was learnt of its rows while the slot moved past
// them is taken back, and what was learnt where the slot is counts.
func TestRelay_TakesBackWhatIsKnownOfATableThatTheOneBeforeDidNotHave(t *testing.T) {
	for name, tt := range map[string]struct {
		had   []uint32 // of whoever streamed before; nil: nobody knows
		point wal.LSN
		known bool
	}{
		"it had another one":                       {[]uint32{outbox.OID + 1}, 99, false},
		"it had none, and that is of where it was": {[]uint32{}, 100, true},
		"it had it":                 {[]uint32{outbox.OID}, 99, true},
		"it was an earlier version": {nil, 99, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, server := newLedger(), newServer(fixed(110, 120, 1, "order/a/1"))
				rec := stored.BeforeSlot{System: "7", Timeline: 1, Slot: "s", OID: outbox.OID, Before: stored.BeforeDeclared, Point: tt.point, Positions: stored.Promises, At: time.Unix(1, 0)}
				l.values[stored.BeforeSlotKey("7", "s", outbox.OID)] = rec.Encode()
				if tt.had != nil {
					l.values[stored.StreamedKey("7", "s")] = (&stored.Streamed{Tables: tt.had}).Encode()
				}
				b := guarded(t, l, server)
				pass(time.Minute)
				b.stop(t)
				found, err := stored.ParseBeforeSlot(l.values[stored.BeforeSlotKey("7", "s", outbox.OID)])
				if err != nil || found.Before.Known() != tt.known {
					t.Errorf("the topic has %q of the table, %v", found.Before, err)
				}
				streamed, err := stored.ParseStreamed(l.values[stored.StreamedKey("7", "s")])
				if err != nil || !slices.Equal(streamed.Tables, []uint32{outbox.OID}) {
					t.Errorf("tables streamed by the topic: %d, %v", streamed.Tables, err)
				}
			})
		})
	}
}
