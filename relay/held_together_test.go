package relay

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// begun is a transaction, and the beginning of a large one.
func begun() *wal.Batch {
	b := several(fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/a/2"))()
	b.Rows[1].Txn.End = 0
	b.Through, b.Open = 120, true
	return b
}

// A row is refused in a later batch of a large transaction, and the beginning of that is
// in one Kafka transaction with what commits before it. All of it was aborted, at every
// start again, and who followed the message moved the slot over what was not delivered.
func TestBlocked_CommitsWhatLiesBeforeALargeTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, l := newServer(begun, fixed(130, 140, 2, "/a/bad")), &ledger{sim: calmSim()}
		server.skipConfirmed = true
		w := watchRelay(t, Config{Guarantee: ExactlyOnce, OnBlocked: ExitWhenBlocked}, server, prompt{&transactional{l: l}}, nil)
		err := <-w.result
		if !slices.Equal(l.rows(), []string{"a/1"}) || !strings.Contains(fmt.Sprint(err), "pg_replication_slot_advance('s', '0/83')") {
			t.Errorf("committed %q, and it says %v", l.rows(), err)
		}
	})
}

// So it is where what lies before waits for the brokers: that is what has to be told, and
// no session may say how to move the slot past both.
func TestBlocked_OffersNoMoveOverWhatWaitsForTheBrokers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func() *wal.Batch {
			b := several(fixed(110, 120, 1, "order/nowhere/1"), fixed(130, 140, 1, "order/a/2"))()
			b.Rows[1].Txn.End = 0
			b.Through, b.Open = 120, true
			return b
		}
		server, l := newServer(open, fixed(130, 140, 2, "/a/bad")), &ledger{sim: calmSim()}
		server.skipConfirmed = true
		w := watchRelay(t, Config{Guarantee: ExactlyOnce}, server, prompt{&transactional{l: l}}, nil)
		for range 3000 {
			pass(20 * time.Millisecond)
			if st := w.relay.Status(); strings.Contains(st.Message, "pg_replication_slot_advance") {
				t.Fatalf("committed %q, and it says %s", l.rows(), st.Message)
			}
		}
		if st := w.relay.Status(); st.State != status.Blocked || st.Reason != "unknown_topic" {
			t.Errorf("%s %s: %s", st.State, st.Reason, st.Message)
		}
		w.relay.Abort() // a drain would wait for the topic, where a try is under way
		w.cancel()
		<-w.result
	})
}

// So is what lies before a row that cannot be read: the message says how to give its
// transaction up.
func TestBlocked_CommitsWhatLiesBeforeWhatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, l := newServer(), &ledger{sim: calmSim()}
		server.skipConfirmed = true
		w := watchRelay(t, Config{Guarantee: ExactlyOnce, OnBlocked: ExitWhenBlocked}, server, prompt{&transactional{l: l}}, nil)
		for began := time.Now(); len(w.result) == 0 && time.Since(began) < time.Minute; {
			b := begun()
			if l.rows() != nil { // it is confirmed
				b.Rows = b.Rows[1:]
			}
			select {
			case server.more <- func() *wal.Batch { return b }:
				synctest.Wait() // rows come before the error behind them
				server.current.fail <- &fault.Error{Kind: fault.KindProtocol, Reason: fault.ReasonUndecodable, LSN: 125, Op: "stream from slot", Err: errors.New("no")}
			case <-time.After(time.Second):
			}
		}
		if err := <-w.result; postgres.Reason(err) != fault.ReasonUndecodable || !slices.Equal(l.rows(), []string{"a/1"}) {
			t.Errorf("committed %q, and it says %v", l.rows(), err)
		}
	})
}

// The first row of a transaction need not be one of ours: those of other tables count too.
func TestBlocked_CommitsWhatLiesBeforeATransactionThatBeginsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func() *wal.Batch {
			b := batch(130, 120, 2, "order/a/2")
			b.Open = true
			return b
		}
		server, l := newServer(fixed(110, 120, 1, "order/a/1"), open, fixed(130, 140, 3, "/a/bad")), &ledger{sim: calmSim()}
		server.skipConfirmed = true
		w := watchRelay(t, Config{Guarantee: ExactlyOnce, OnBlocked: ExitWhenBlocked}, server, prompt{&transactional{l: l}}, nil)
		if err := <-w.result; !slices.Equal(l.rows(), []string{"a/1"}) {
			t.Errorf("committed %q, and it says %v", l.rows(), err)
		}
	})
}
