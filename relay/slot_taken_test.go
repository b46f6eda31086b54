package relay

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

var errBusy = &fault.Error{Kind: fault.KindBusy, Reason: fault.ReasonSlotInUse, Op: "start", Err: errors.New("another relay has it")}

// A relay that has the slot meanwhile comes to the same row, and may be gone after it sent
// only a part of what lies before: who goes on after what it delivered itself would leave
// the rest out behind that.
func TestStandby_SendsTheBeginningAgainThatAnotherRelayMayHaveSent(t *testing.T) {
	for name, c := range map[string]struct {
		busy int64 // how often the slot is in use
		want string
	}{
		"nobody had it":  {0, "1 2 3"},
		"another had it": {3, "1 2 1 2 3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := func(first int, rows ...string) func() *wal.Batch {
					return func() *wal.Batch {
						b := batch(130, 0, first, rows...)
						b.Open = true
						return b
					}
				}
				server := newServer(begun(1, "order/a/1", "order/a/2"))
				server.origin = wal.Origin{SystemID: "7", Timeline: 1}
				server.openErr = func(n int64) error {
					if n > 1 && n <= 1+c.busy {
						return errBusy
					}
					return nil
				}
				b := start(t, Config{}, server)
				pass(time.Second)
				server.current.fail <- errLarge
				pass(10 * time.Second)
				if n := server.opens.Load(); n != 2+c.busy {
					t.Errorf("asked for the slot %d times", n)
				}
				server.more <- begun(3, "order/a/3")
				pass(time.Second)
				if got := b.values(); got != c.want {
					t.Errorf("delivered %q, want %q", got, c.want)
				}
				b.relay.Abort()
				b.cancel()
				<-b.result
			})
		})
	}
}

// A session ends for a reason of its own and waits for its last answers. When its
// connection goes meanwhile, who stands by has the slot from then on.
func TestStandby_NothingLandsOnceTheSlotOfAnEndingSessionIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		written bool
		answer  time.Duration // behind the loss
		want    string
	}{
		"not written yet":            {answer: lossGrace / 2},
		"written, answered in time":  {answer: lossGrace / 2, written: true, want: "1"},
		"written, answered too late": {answer: standbyGrace, written: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(probe)
				p.snapshot.Store(new(watch.Snapshot))
				b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1), probe: p}
				b.server.lost = make(chan struct{})
				b.sink.Hold()
				b.sink.Written(c.written)
				b.start(t, Config{ProbeInterval: time.Second})
				pass(2500 * time.Millisecond)
				p.snapshot.Store(&watch.Snapshot{Drift: &fault.Error{Kind: fault.KindDrift, Reason: fault.ReasonPublicationChanged, Err: errors.New("altered")}})
				pass(time.Second)
				if n := b.sink.Counts().Waiting; n != 1 {
					t.Errorf("waits for %d answers while it has the slot", n)
				}
				close(b.server.lost)
				pass(c.answer)
				b.sink.Release()
				pass(time.Second)
				if st := b.relay.Status(); st.State != status.Blocked || st.Reason != fault.ReasonPublicationChanged {
					t.Errorf("%s %s: %s", st.State, st.Reason, st.Message)
				}
				if got := b.values(); got != c.want {
					t.Errorf("delivered %q, want %q", got, c.want)
				}
				b.cancel()
				<-b.result
			})
		})
	}
}

// A row that cannot be read has the server let the slot go, and who stands by takes it
// before the rows that lie before are committed. That is no reason to end: two relays of
// one slot are usual.
func TestStandby_WhoIsShutOutAtARowThatCannotBeReadStandsBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, l := newServer(), &ledger{sim: calmSim()}
		server.skipConfirmed = true
		free := time.Now().Add(time.Minute)
		server.openErr = func(n int64) error {
			if n > 1 && time.Now().Before(free) {
				return errBusy
			}
			return nil
		}
		w := watchRelay(t, Config{Guarantee: ExactlyOnce}, server, &transactional{l: l}, nil)
		pass(time.Second)
		server.more <- fixed(110, 120, 1, "order/a/1")
		synctest.Wait() // rows come before the error behind them
		server.current.fail <- &fault.Error{Kind: fault.KindProtocol, Reason: fault.ReasonUndecodable, LSN: 150, Op: "stream from slot", Err: errors.New("no")}
		l.mu.Lock()
		l.epoch++ // the other one opens
		l.mu.Unlock()
		pass(30 * time.Second)
		if len(w.result) > 0 {
			t.Fatalf("it ended: %v", <-w.result)
		}
		if st := w.relay.Status(); st.State != status.Standby || l.rows() != nil {
			t.Errorf("%s %s: %s; committed %q", st.State, st.Reason, st.Message, l.rows())
		}
		if changes := w.since(); !slices.Equal(changes, []status.State{status.Streaming, status.Blocked, status.Standby}) {
			t.Errorf("changes of state: %v", changes)
		}
		pass(time.Minute)
		server.more <- fixed(110, 120, 1, "order/a/1")
		pass(time.Second)
		if !slices.Equal(l.rows(), []string{"a/1"}) {
			t.Errorf("with the slot again it committed %q", l.rows())
		}
		w.stop(t)
	})
}

// The server frees the slot only when it finds the lost connection gone. Until then no other
// relay streams, and what the relay is blocked by stays.
func TestBlocked_StaysSoWhileItsOldConnectionHoldsTheSlot(t *testing.T) {
	for name, tt := range map[string]struct {
		holder int // beside the process that the first session streams from
		state  status.State
		reason string
	}{
		"its own":         {holder: 0, state: status.Blocked, reason: fault.ReasonRowTooLarge},
		"another relay's": {holder: 1, state: status.Standby, reason: fault.ReasonSlotInUse},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(fixed(110, 115, 1, "order/a/1"))
				w := watchRelay(t, Config{}, server, new(sinktest.Recorder), nil)
				pass(time.Second)
				server.openErr = func(int64) error {
					return &fault.Error{Kind: fault.KindBusy, Op: "start streaming from", Holder: server.current.process + tt.holder, Err: errors.New("the slot is in use")}
				}
				server.current.fail <- errLarge
				pass(time.Second)
				for range 100 {
					pass(100 * time.Millisecond)
					if st := w.relay.Status(); st.State != tt.state || st.Reason != tt.reason {
						t.Fatalf("%s %s: %s", st.State, st.Reason, st.Message)
					}
				}
				asked := server.opens.Load()
				pass(10 * time.Second)
				if n := server.opens.Load() - asked; n < 10 {
					t.Errorf("asked %d times in ten seconds", n)
				}
				w.stop(t)
			})
		})
	}
}
