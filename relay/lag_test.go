package relay

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// committed gives the rows of a batch a commit time.
func committed(at time.Time, commit, through wal.LSN, rows ...string) func() *wal.Batch {
	return func() *wal.Batch {
		b := batch(commit, through, 1, rows...)
		for i := range b.Rows {
			b.Rows[i].Txn.Time, b.Rows[i].Txn.End = at, through
		}
		return b
	}
}

// joined is the batches as one.
func joined(all ...func() *wal.Batch) func() *wal.Batch {
	return func() *wal.Batch {
		b := all[0]()
		for _, next := range all[1:] {
			n := next()
			b.Rows, b.Through, b.Bytes = append(b.Rows, n.Rows...), n.Through, b.Bytes+n.Bytes
		}
		return b
	}
}

// wantLag compares to the second; nil is not known.
func (b *bench) wantLag(t *testing.T, when string, want *time.Duration) {
	t.Helper()
	got := b.relay.Status().LagSeconds
	switch {
	case got == nil && want == nil:
	case got == nil:
		t.Errorf("%s: the lag is not known, want %s", when, *want)
	case want == nil:
		t.Errorf("%s: the lag is %.1fs, want it not known", when, *got)
	case time.Duration(*got*float64(time.Second)).Round(time.Second) != *want:
		t.Errorf("%s: the lag is %.1fs, want %s", when, *got, *want)
	}
}

// behindSource has read so far, of so much.
type behindSource struct {
	*fakeSource
	received *atomic.Uint64
}

func (s behindSource) Received() wal.LSN { return wal.LSN(s.received.Load()) }

func TestLag_IsTheAgeOfTheOldestUnconfirmedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		b := &bench{server: newServer(committed(now, 110, 120, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.start(t, Config{})
		pass(4 * time.Minute)
		b.wantLag(t, "four quiet minutes after the last row", new(time.Duration))
		b.sink.Hold()
		b.server.more <- committed(time.Now().Add(-time.Second), 130, 140, "order/a/2")
		b.server.more <- committed(time.Now(), 150, 160, "order/a/3")
		pass(3 * time.Second)
		b.wantLag(t, "one row 4s old and a younger one", new(4*time.Second))
		b.sink.Ack(1)
		pass(time.Second)
		b.wantLag(t, "with the younger row alone", new(4*time.Second))
		b.sink.Release()
		pass(time.Second)
		b.wantLag(t, "with everything confirmed", new(time.Duration))
		b.stop(t)
	})
}

// What is acknowledged and not confirmed is sent again after a crash: it counts.
func TestLag_CountsRowsUntilTheServerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(committed(time.Now(), 110, 120, "order/a/1"))
		server.status = 10 * time.Second
		b := &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.start(t, Config{})
		pass(8 * time.Second)
		if got := b.values(); got != "1" {
			t.Fatalf("delivered %q", got)
		}
		b.wantLag(t, "before the server is told", new(8*time.Second))
		pass(8 * time.Second)
		b.wantLag(t, "when it was", new(time.Duration))
		b.stop(t)
	})
}

func TestLag_GrowsAtARowThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		b := start(t, Config{}, newServer(joined(committed(now.Add(-time.Minute), 110, 120, "order/a/1"), committed(now, 130, 140, "order/a/2", "/a/3"))))
		pass(30 * time.Second)
		if st := b.relay.Status(); st.State != status.Blocked || b.server.position() != 120 {
			t.Fatalf("%s, confirmed %s", st.State, b.server.position())
		}
		b.wantLag(t, "blocked", new(30*time.Second)) // the transaction of a minute ago is confirmed
		b.stop(t)
	})
}

// A row that was read and not confirmed waits also while there is no connection.
func TestLag_GrowsWhileDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(committed(time.Now(), 110, 120, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		var refuse atomic.Bool
		refuse.Store(true)
		b.server.openErr = func(n int64) error {
			if n > 1 && refuse.Load() {
				return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Err: errors.New("refused")}
			}
			return nil
		}
		b.start(t, Config{})
		pass(5 * time.Second)
		b.server.cut()
		pass(55 * time.Second)
		if st := b.relay.Status(); st.State != status.Reconnecting || st.OldestUnacked != nil {
			t.Fatalf("%s, oldest %v", st.State, st.OldestUnacked)
		}
		b.wantLag(t, "disconnected", new(time.Minute))
		refuse.Store(false)
		b.sink.Release()
		pass(5 * time.Second)
		b.wantLag(t, "connected again", new(time.Duration))
		b.server.cut()
		refuse.Store(true)
		pass(5 * time.Second)
		b.wantLag(t, "disconnected with everything confirmed", nil)
		b.stop(t)
	})
}

// Another relay that had the slot confirmed the row.
func TestLag_IsUnknownOnceSomebodyElseConfirmedTheRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(probe)
		p.snapshot.Store(&watch.Snapshot{WALEnd: 900, Slot: catalog.SlotInfo{Confirmed: 100, Restart: 50}})
		b := &bench{server: newServer(committed(time.Now(), 110, 120, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1), probe: p}
		b.sink.Hold()
		b.server.openErr = func(n int64) error {
			if n > 1 {
				return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Err: errors.New("refused")}
			}
			return nil
		}
		b.start(t, Config{ProbeInterval: time.Second})
		pass(5 * time.Second)
		b.server.cut()
		pass(5 * time.Second)
		b.wantLag(t, "disconnected", new(10*time.Second))
		p.snapshot.Store(&watch.Snapshot{WALEnd: 900, Slot: catalog.SlotInfo{Confirmed: 120, Restart: 50}})
		pass(2 * time.Second)
		b.wantLag(t, "confirmed by another relay", nil)
		b.stop(t)
	})
}

// A failover lost the row that was read last. Its position is another row's, or none's.
func TestLag_ForgetsARowThatAFailoverLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(committed(time.Now(), 110, 120, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.server.origin = wal.Origin{SystemID: "7000", Timeline: 1}
		b.sink.Hold()
		b.start(t, Config{})
		pass(5 * time.Second)
		b.wantLag(t, "with the row in flight", new(5*time.Second))
		b.server.mu.Lock()
		b.server.origin = wal.Origin{SystemID: "7000", Timeline: 2, Forks: []wal.Fork{{Timeline: 1, At: 105}}}
		b.server.batches = nil
		b.server.mu.Unlock()
		b.server.cut()
		pass(time.Minute)
		if st := b.relay.Status(); st.State != status.Streaming {
			t.Fatalf("%s: %s", st.State, st.Message)
		}
		b.wantLag(t, "on the timeline without the row", new(time.Duration))
		b.stop(t)
	})
}

func TestLag_IsUnknownBeforeTheFirstSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(probe)
		p.snapshot.Store(&watch.Snapshot{WALEnd: 5 << 20, Slot: catalog.SlotInfo{Confirmed: 4 << 20, Restart: 3 << 20}})
		b := &bench{server: newServer(), sink: new(sinktest.Recorder), probe: p, result: make(chan error, 1)}
		b.sink.SetReady(&sink.Error{Class: sink.Retry, Reason: "network", Err: errors.New("dial broker: refused")})
		b.start(t, Config{})
		pass(time.Minute)
		b.wantLag(t, "brokers away since the start", nil)
		if st := b.relay.Status(); st.LagBytes == nil || *st.LagBytes != 1<<20 || st.RetainedWALBytes != 2<<20 || st.OldestUnacked != nil {
			t.Errorf("%d bytes behind, %d retained, oldest %v", st.LagBytes, st.RetainedWALBytes, st.OldestUnacked)
		}
		b.stop(t)
	})
}

// WAL that nobody has read may hold rows of any age. That of other tables does not hold any,
// which is known once it was read.
func TestLag_IsUnknownWhileTheStreamIsBehindWithoutARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var received atomic.Uint64
		received.Store(100)
		p := new(probe)
		p.snapshot.Store(&watch.Snapshot{WALEnd: 1000, Slot: catalog.SlotInfo{Confirmed: 100, Restart: 50}})
		server := newServer()
		server.wrap = func(f *fakeSource) Source { return behindSource{f, &received} }
		b := &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1), probe: p}
		b.start(t, Config{ProbeInterval: time.Second})
		pass(time.Minute)
		b.wantLag(t, "behind since the start", nil)
		old := time.Now().Add(-time.Hour)
		b.server.more <- committed(old, 110, 120, "order/a/1")
		pass(2 * time.Second)
		b.wantLag(t, "between two rows of the backlog", new(time.Hour+2*time.Second))
		pass(time.Minute)
		b.wantLag(t, "long after a row of the backlog", nil)
		received.Store(1000)
		pass(2 * time.Second)
		b.wantLag(t, "where the server was", new(time.Duration))
		p.snapshot.Store(&watch.Snapshot{WALEnd: 5000, Slot: catalog.SlotInfo{Confirmed: 120, Restart: 50}})
		pass(3 * time.Second)
		b.wantLag(t, "a moment behind", new(time.Duration))
		pass(10 * time.Second)
		b.wantLag(t, "behind again", nil)
		b.stop(t)
	})
}

func TestLag_OfAStandbyIsAnotherRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(committed(time.Now(), 110, 120, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		b.server.openErr = func(n int64) error {
			if n > 1 {
				return &fault.Error{Kind: fault.KindBusy, Reason: fault.ReasonSlotInUse, Err: errors.New("held by pid 7")}
			}
			return nil
		}
		b.start(t, Config{})
		pass(time.Second)
		b.server.cut()
		pass(10 * time.Second)
		if st := b.relay.Status(); st.State != status.Standby {
			t.Fatalf("%s", st.State)
		}
		b.wantLag(t, "standing by", nil)
		b.stop(t)
	})
}
