package relay

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// The brokers refuse a row, and their answer comes after the error of a later row that
// cannot be read. No session looked at the answer, so the row was never set aside, all
// that lies before the other one was aborted at every start, and the message said how to
// move the slot past that.
func TestBlocked_SetsAsideWhatIsRefusedBeforeWhatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, l := newServer(), &ledger{sim: calmSim()}
		server.skipConfirmed = true
		w := watchRelay(t, Config{Guarantee: ExactlyOnce, OnReject: SkipOnReject, OnBlocked: ExitWhenBlocked}, server, &transactional{l: l}, nil)
		for began := time.Now(); len(w.result) == 0 && time.Since(began) < time.Minute; {
			fresh := several(fixed(110, 120, 1, "order/bad/1"), fixed(130, 140, 1, "order/a/2"))
			if l.rows() != nil { // it is confirmed
				fresh = func() *wal.Batch { return &wal.Batch{Through: 145} }
			}
			select {
			case server.more <- fresh:
				synctest.Wait() // rows come before the error behind them
				server.current.fail <- &fault.Error{Kind: fault.KindProtocol, Reason: fault.ReasonUndecodable, LSN: 150, Op: "stream from slot", Err: errors.New("no")}
			case <-time.After(time.Second):
			}
		}
		if err := <-w.result; postgres.Reason(err) != fault.ReasonUndecodable || !slices.Equal(l.rows(), []string{"a/2"}) {
			t.Errorf("committed %q, and it says %v", l.rows(), err)
		}
	})
}

// So does at-least-once, for as long as it has the slot.
func TestBlocked_DeliversWhatLiesBeforeWhatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		cfg       Config
		want      string
		confirmed wal.LSN
		reason    string
	}{
		"skip": {Config{OnReject: SkipOnReject}, "2", 140, fault.ReasonRowTooLarge},
		"stop": {Config{}, "", 100, "record_too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, to := newServer(), new(sinktest.Recorder)
				to.Delay(10 * time.Millisecond) // the answers come after the error
				to.Decide(func(r *record.Record) sinktest.Verdict {
					if string(r.Key) == "bad" {
						return sinktest.Fail(sink.Rejected, "record_too_large", errors.New("too large"))
					}
					return sinktest.Verdict{}
				})
				b := &bench{server: server, sink: to, result: make(chan error, 1)}
				b.start(t, c.cfg)
				for range 5 {
					select {
					case server.more <- several(fixed(110, 120, 1, "order/bad/1"), fixed(130, 140, 1, "order/a/2")):
						synctest.Wait() // rows come before the error behind them
						server.current.fail <- errLarge
					case <-time.After(100 * time.Millisecond):
					}
					if pass(time.Second); server.position() >= c.confirmed {
						break
					}
				}
				if st := b.relay.Status(); st.State != status.Blocked || st.Reason != c.reason || b.values() != c.want || server.position() != c.confirmed {
					t.Errorf("delivered %q, confirmed %s, and it says %s %s: %s", b.values(), server.position(), st.State, st.Reason, st.Message)
				}
				b.stop(t)
			})
		})
	}
}

// The connection goes while what lies before is delivered: who stands by has the slot.
func TestStandby_NothingLandsOnceTheSlotOfAnUnreadRowIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.server.lost = make(chan struct{})
		b.sink.Hold()
		b.start(t, Config{OnBlocked: ExitWhenBlocked})
		b.server.more <- fixed(110, 120, 1, "order/a/1")
		synctest.Wait() // rows come before the error behind them
		b.server.current.fail <- errLarge
		pass(time.Second)
		close(b.server.lost)
		pass(standbyGrace)
		b.sink.Release()
		if err := <-b.result; postgres.Reason(err) != fault.ReasonRowTooLarge || b.values() != "" {
			t.Errorf("delivered %q, and it says %v", b.values(), err)
		}
	})
}

// letsGo is a server that meets a row which it cannot decode right behind two others: it
// ends the copy with an error, and lets go of the slot.
type letsGo struct {
	*fakeSource
	lost chan struct{}
}

func (l *letsGo) Lost() <-chan struct{} { return l.lost }

func (l *letsGo) Run(_ context.Context, out chan<- *wal.Batch, _ func() wal.LSN) error {
	out <- several(fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/a/2"))()
	close(l.lost)
	return &fault.Error{Kind: fault.KindProtocol, Reason: fault.ReasonUndecodable, LSN: 150, Op: "stream from slot", Err: errors.New("no")}
}

func (l *letsGo) Close(context.Context, wal.LSN) error { return errors.New("the copy is over") }

// Every session ends so, and none waited for the brokers: what lies before the row was
// delivered by luck, and given up with it by whoever moved the slot.
func TestBlocked_DeliversWhatLiesBeforeTheErrorOfTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		answer time.Duration
		want   string
	}{
		"in time":  {20 * time.Millisecond, "1 2"},
		"too late": {endGrace + 20*time.Millisecond, ""}, // who stands by may have the slot
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{server: newServer(), sink: new(sinktest.Recorder), result: make(chan error, 1)}
				b.sink.Delay(c.answer)
				b.server.wrap = func(f *fakeSource) Source { return &letsGo{f, make(chan struct{})} }
				b.start(t, Config{OnBlocked: ExitWhenBlocked})
				if err := <-b.result; postgres.Reason(err) != fault.ReasonUndecodable || b.values() != c.want {
					t.Errorf("delivered %q, and it says %v", b.values(), err)
				}
			})
		})
	}
}
