package relay

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// A row that cannot be read ends every session at the same place. What stands before
// it in its transaction is delivered by the first one only.
func TestRelay_DeliversOnceWhatIsBeforeARowThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := func(commit wal.LSN, first int, rows ...string) func() *wal.Batch {
			return func() *wal.Batch {
				b := batch(commit, 0, first, rows...)
				b.Open = true
				return b
			}
		}
		server := newServer(fixed(110, 120, 1, "order/a/1"), begun(130, 1, "order/a/2", "order/b/3"), begun(130, 3, "order/a/4"))
		server.origin = wal.Origin{SystemID: "1", Timeline: 1}
		b := start(t, Config{RetryMin: 10 * time.Millisecond}, server)
		unreadable := func() {
			server.mu.Lock()
			current := server.current
			server.mu.Unlock()
			current.fail <- &fault.Error{Kind: fault.KindProtocol, Reason: fault.ReasonRowTooLarge, LSN: 125, Err: errors.New("too large")}
		}
		for range 5 {
			pass(5 * time.Second)
			unreadable()
		}
		pass(5 * time.Millisecond)
		if st := b.relay.Status(); st.State != status.Blocked || st.Reason != fault.ReasonRowTooLarge {
			t.Errorf("status %s %s", st.State, st.Reason)
		}
		if got := b.values(); got != "1 2 3 4" || server.position() != 120 {
			t.Errorf("delivered %q, confirmed %s", got, server.position())
		}

		b.relay.Abort()
		b.cancel()
		<-b.result
	})
}

// A stream that had to drop rows is begun anew at once, and goes on behind what was delivered.
func TestRelay_GoesOnWhereRowsWereDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := func(first int, rows ...string) func() *wal.Batch {
			return func() *wal.Batch {
				b := batch(130, 0, first, rows...)
				b.Open = true
				return b
			}
		}
		server := newServer(fixed(110, 120, 1, "order/a/1"), begun(1, "order/a/2", "order/b/3"))
		server.origin = wal.Origin{SystemID: "1", Timeline: 1}
		b := start(t, Config{RetryMin: time.Minute}, server)
		pass(5 * time.Second)
		server.mu.Lock()
		current := server.current
		server.batches = append(server.batches, fixed(130, 140, 3, "order/a/4"))
		server.mu.Unlock()
		current.fail <- fmt.Errorf("stream from slot: %w", wal.ErrReadPast)
		pass(5 * time.Second)
		if got := b.values(); got != "1 2 3 4" || server.position() != 140 {
			t.Errorf("delivered %q, confirmed %s", got, server.position())
		}
		if st := b.relay.Status(); st.State != status.Streaming {
			t.Errorf("status %s %s", st.State, st.Reason)
		}
		b.stop(t)
	})
}

// A row that waits for room when the stream breaks was read, and is not delivered.
func TestRelay_SendsWhatWaitedForRoomBeforeARowThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func(first int, rows ...string) func() *wal.Batch {
			return func() *wal.Batch {
				b := batch(130, 0, first, rows...)
				b.Open, b.Bytes = true, 2<<20
				return b
			}
		}
		server := newServer(open(1, "order/a/1"), open(2, "order/a/2"))
		server.origin = wal.Origin{SystemID: "1", Timeline: 1}
		b := &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		b.start(t, Config{RetryMin: 10 * time.Millisecond, MaxInFlightBytes: 1 << 20})
		pass(time.Second)
		server.mu.Lock()
		current := server.current
		server.mu.Unlock()
		current.fail <- &fault.Error{Kind: fault.KindProtocol, Reason: fault.ReasonRowTooLarge, LSN: 125, Err: errors.New("too large")}
		pass(time.Millisecond)
		b.sink.Release()
		pass(5 * time.Second)
		if got := b.values(); got != "1 1 2" && got != "1 2" {
			t.Errorf("delivered %q", got)
		}
		b.relay.Abort()
		b.cancel()
		<-b.result
	})
}

// A slot that is ahead was another relay's meanwhile, which may have sent the beginning once more: what
// goes on after it has to begin there too. A slot that went back with a crash of PostgreSQL
// brings earlier rows of the same keys again, which may not come last.
func TestRelay_SendsTheBeginningAgainWhereTheSlotIsElsewhere(t *testing.T) {
	for _, c := range []struct {
		slot wal.LSN
		want string
	}{{120, "1 2 3 4"}, {125, "1 2 3 4 2 3 4"}, {105, "1 2 3 4 1 2 3 4"}} {
		synctest.Test(t, func(t *testing.T) {
			begun := func(commit wal.LSN, first int, rows ...string) func() *wal.Batch {
				return func() *wal.Batch {
					b := batch(commit, 0, first, rows...)
					b.Open = true
					return b
				}
			}
			server := newServer(fixed(110, 120, 1, "order/a/1"), begun(130, 1, "order/a/2", "order/b/3"), begun(130, 3, "order/a/4"))
			server.origin = wal.Origin{SystemID: "1", Timeline: 1}
			b := start(t, Config{RetryMin: 10 * time.Millisecond}, server)
			pass(5 * time.Second)
			server.mu.Lock()
			current := server.current
			server.mu.Unlock()
			current.fail <- &fault.Error{Kind: fault.KindProtocol, Reason: fault.ReasonRowTooLarge, LSN: 125, Err: errors.New("too large")}
			pass(time.Millisecond)
			server.mu.Lock()
			server.confirmed = c.slot
			server.mu.Unlock()
			pass(5 * time.Second)
			if got := b.values(); got != c.want {
				t.Errorf("with the slot at %s: delivered %q, want %q", c.slot, got, c.want)
			}
			b.relay.Abort()
			b.cancel()
			<-b.result
		})
	}
}

// While the server still has the lost connection of the relay itself, nobody else can have
// sent the beginning. Where another relay has the slot, it may have.
func TestRelay_SendsNothingAgainWhileItsOldConnectionHoldsTheSlot(t *testing.T) {
	for _, c := range []struct {
		holder int // beside the process that the first session streams from
		want   string
	}{{0, "1 2 3"}, {1, "1 2 3 2 3"}} {
		synctest.Test(t, func(t *testing.T) {
			begun := func() *wal.Batch {
				b := batch(130, 0, 1, "order/a/2", "order/b/3")
				b.Open = true
				return b
			}
			server := newServer(fixed(110, 120, 1, "order/a/1"), begun)
			server.origin = wal.Origin{SystemID: "1", Timeline: 1}
			b := start(t, Config{RetryMin: 10 * time.Millisecond}, server)
			pass(5 * time.Second)
			server.mu.Lock()
			current := server.current
			server.mu.Unlock()
			held := time.Now().Add(3 * time.Second)
			server.openErr = func(int64) error {
				if time.Now().After(held) {
					return nil
				}
				return &fault.Error{Kind: fault.KindBusy, Op: "start streaming from", Holder: current.process + c.holder, Err: errors.New("the slot is in use")}
			}
			current.fail <- &fault.Error{Kind: fault.KindProtocol, Reason: fault.ReasonRowTooLarge, LSN: 125, Err: errors.New("too large")}
			pass(30 * time.Second)
			if got := b.values(); got != c.want {
				t.Errorf("the slot is held by the process %d behind its own: delivered %q, want %q", c.holder, got, c.want)
			}
			b.relay.Abort()
			b.cancel()
			<-b.result
		})
	}
}
