package relay

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// `BEGIN; INSERT …; SELECT pg_logical_emit_message(false, …); COMMIT` has the server send
// a message whose position is the end of its record, and then the transaction, whose
// commit record starts there. Both were taken for rows of one transaction.

// message is one outside any transaction, which confirms nothing by itself.
func message(at wal.LSN, row string) func() *wal.Batch {
	return func() *wal.Batch {
		b := batch(at, 0, 1, row)
		b.Rows[0].Txn.Time = time.Time{}
		return b
	}
}

// together puts a message in front of the transaction after it.
func together(at wal.LSN, text string, rows ...string) func() *wal.Batch {
	return func() *wal.Batch {
		b := several(fixed(at, at+10, 1, rows...))()
		b.Rows = append(message(at, text)().Rows, b.Rows...)
		return b
	}
}

// The position behind the message covered the first bytes of the commit record, and
// with it the whole transaction: after a restart it was never sent.
func TestMessage_CoversNoTransactionThatCommitsWhereItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, l := newServer(fixed(110, 120, 1, "order/a/1"), message(130, "order/a/m")), &ledger{sim: calmSim()}
		w := watchRelay(t, Config{Guarantee: ExactlyOnce}, server, &transactional{l: l}, nil)
		pass(5 * time.Second)
		if got := l.rows(); !slices.Equal(got, []string{"a/1", "a/m"}) {
			t.Fatalf("committed %q", got)
		}
		server.batches = append(server.batches, fixed(130, 140, 1, "order/a/2"))
		server.cut()
		pass(5 * time.Second)
		w.stop(t)
		if got := l.rows(); !slices.Equal(got, []string{"a/1", "a/m", "a/2"}) {
			t.Errorf("committed %q", got)
		}
	})
}

// Part of a large transaction is no part of the message before it, which is delivered
// once as well.
func TestMessage_BeforeADividedTransactionComesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := func() *wal.Batch {
			b := together(130, "order/a/m", "order/a/1", "order/a/2")()
			b.Through, b.Open = 0, true
			b.Rows[1].Txn.End = 0
			return b
		}
		server, l := newServer(first), &ledger{sim: calmSim()}
		w := watchRelay(t, Config{Guarantee: ExactlyOnce}, server, &transactional{l: l}, nil)
		pass(time.Second)
		w.relay.session.Load().delivery.MakeRoom()
		pass(5 * time.Second)
		if got := l.rows(); !slices.Equal(got, []string{"a/m", "a/1", "a/2"}) {
			t.Fatalf("committed %q", got)
		}
		server.batches = append(server.batches, fixed(130, 140, 3, "order/a/3"))
		server.cut()
		pass(5 * time.Second)
		w.stop(t)
		if got := l.rows(); !slices.Equal(got, []string{"a/m", "a/1", "a/2", "a/3"}) {
			t.Errorf("committed %q", got)
		}
	})
}

// Nor does the message's verdict fall on the first row of the transaction.
func TestMessage_IsCondemnedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, l := newServer(together(130, "order/bad/m", "order/a/1", "order/a/2")), &ledger{sim: calmSim()}
		w := watchRelay(t, Config{Guarantee: ExactlyOnce, OnReject: SkipOnReject}, server, &transactional{l: l}, nil)
		pass(10 * time.Second)
		w.stop(t)
		if got := l.rows(); !slices.Equal(got, []string{"a/1", "a/2"}) {
			t.Errorf("committed %q", got)
		}
	})
}

// With at-least-once the message is taken for the beginning of a transaction whose first
// row cannot be read, and that row was left out once it could.
func TestMessage_IsNoBeginningOfTheTransactionBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := func() *wal.Batch {
			b := message(130, "order/a/m")()
			b.Open = true
			return b
		}
		b := start(t, Config{}, newServer(begun))
		pass(time.Second)
		b.server.batches = append(b.server.batches, fixed(130, 140, 1, "order/a/1"))
		b.server.current.fail <- &fault.Error{Kind: fault.KindProtocol, Reason: fault.ReasonUndecodable, LSN: 125, Op: "stream from slot", Err: errors.New("no")}
		pass(5 * time.Second)
		b.stop(t)
		if got := b.values(); got != "m 1" || b.server.position() != 140 {
			t.Errorf("delivered %q, confirmed %s", got, b.server.position())
		}
	})
}

// Who gives the message up gives up nothing else.
func TestMessage_IsLeftOutWithoutTheTransactionBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(together(130, "/a/m", "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.start(t, Config{})
		pass(5 * time.Second)
		if st := b.relay.Status(); st.State != status.Blocked || !strings.Contains(st.Message, "pg_replication_slot_advance('', '0/82')") || !strings.Contains(st.Message, "committing at 0/81 ") {
			t.Errorf("%s: %s", st.State, st.Message)
		}
		b.stop(t)
	})
}

// Nor is it counted, or named in the log, as that row.
func TestMessage_IsCountedAsARowOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(together(130, "/a/m", "/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.start(t, Config{OnReject: SkipOnReject})
		pass(5 * time.Second)
		b.stop(t)
		if got := b.counts.rejected.Load(); got != 2 {
			t.Errorf("counted %d rows of 2", got)
		}
	})
}
