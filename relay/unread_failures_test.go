package relay

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/replication"
)

// The brokers refuse a row, and their answer comes behind the error of a later row that
// cannot be read. No session looked at the answer, so the row was never set aside, all
// that lies before the other one was aborted at every start, and the message said how to
// move the slot past that.
func TestBlocked_SetsAsideWhatIsRefusedBeforeWhatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, l := newServer(), &ledger{sim: calmSim()}
		server.skipConfirmed = true
		w := watch(t, Config{Guarantee: ExactlyOnce, OnReject: SkipOnReject, OnBlocked: ExitWhenBlocked}, server, &transactional{l: l}, nil)
		for began := time.Now(); len(w.result) == 0 && time.Since(began) < time.Minute; {
			fresh := several(fixed(110, 120, 1, "order/bad/1"), fixed(130, 140, 1, "order/a/2"))
			if l.rows() != nil { // it is confirmed
				fresh = func() *replication.Batch { return &replication.Batch{Through: 145} }
			}
			select {
			case server.more <- fresh:
				synctest.Wait() // rows come before the error behind them
				server.current.fail <- &replication.Error{Kind: replication.KindProtocol, Reason: replication.ReasonUndecodable, LSN: 150, Op: "stream from slot", Err: errors.New("no")}
			case <-time.After(time.Second):
			}
		}
		if err := <-w.result; replication.Reason(err) != replication.ReasonUndecodable || !slices.Equal(l.rows(), []string{"a/2"}) {
			t.Errorf("committed %q, and it says %v", l.rows(), err)
		}
	})
}
