package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// stopping is a sink that asks for the relay's stop when it is given its first records: they are
// in flight then.
type stopping struct {
	*transactional
	once   sync.Once
	stop   func()
	silent bool // it answers nothing after that session
	opens  int
}

func (s *stopping) Open(ctx context.Context, h sink.Holder) ([]byte, error) {
	s.opens++
	return s.transactional.Open(ctx, h)
}

func (s *stopping) Send(ctx context.Context, records []record.Record, done func(error)) {
	s.once.Do(func() { s.stop() })
	if !s.silent || s.opens == 1 {
		s.transactional.Send(ctx, records, done)
	}
}

func (s *stopping) SetPosition(at sink.Position) {
	if !s.silent || s.opens == 1 {
		s.transactional.SetPosition(at)
	}
}

// drained stops a relay while rows are in flight of which the brokers reject two, and returns what
// Run returned. After the stop a row is committed every millisecond, for an hour.
func drained(t *testing.T, opens func(session int64) error, silent bool) (server *fakeServer, l *ledger, took time.Duration, err error) {
	t.Helper()
	server = newServer(fixed(110, 120, 1, "order/a/1", "order/b/bad", "order/a/2"), fixed(130, 140, 1, "order/c/3", "order/d/bad"), fixed(150, 160, 1, "order/a/4"))
	server.openErr = opens
	l = &ledger{sim: calmSim(), refuses: func(r *record.Record) bool { return string(r.Value) == "bad" && r.Topic != lettersTopic }}
	to := &stopping{transactional: &transactional{l: l}, silent: silent}
	ready := make(chan *watched, 1)
	var began time.Time
	to.stop = func() {
		began = time.Now()
		(<-ready).cancel()
		go func() {
			for i := range 3_600_000 {
				at := wal.LSN(1000 + 20*i)
				select {
				case server.more <- fixed(at, at+10, 1, fmt.Sprintf("order/a/late%d", i)):
					pass(time.Millisecond)
				case <-t.Context().Done():
					return
				}
			}
		}()
	}
	w := watchRelay(t, Config{Guarantee: ExactlyOnce, OnReject: DeadLetterOnReject, DeadLetterTopic: lettersTopic, DrainTimeout: 30 * time.Second}, server, to, new(glance))
	ready <- w
	err = <-w.result
	return server, l, time.Since(began), err
}

// A record that the brokers reject in a drain takes another session. The drain goes on with it for
// the rows that were read, and reads none that came later.
func TestDrain_GoesOnWhenTheBrokersRejectARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, l, took, err := drained(t, nil, false)
		if err != nil || took > 10*time.Second {
			t.Errorf("ended after %s with %v", took, err)
		}
		got := l.topics()
		want := []string{"order-events 1", lettersTopic + " bad", "order-events 2", "order-events 3", lettersTopic + " bad", "order-events 4"}
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) || len(got) > len(want)+100 {
			t.Errorf("committed %d records, %q", len(got), got[:min(len(got), 20)])
		}
		if n := server.opens.Load(); n < 2 {
			t.Errorf("%d sessions: no record was rejected in the drain", n)
		}
	})
}

// The sessions of a drain have its time together.
func TestDrain_IsCutShortAtItsEndWhicheverSessionItIsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, took, err := drained(t, nil, true)
		if !errors.Is(err, ErrDrainCut) || took < 30*time.Second || took > 45*time.Second {
			t.Errorf("ended after %s with %v", took, err)
		}
		if got := l.topics(); len(got) > 0 {
			t.Errorf("committed %q", got)
		}
	})
}

// A drain that cannot have the slot again says so: its rows were not sent.
func TestDrain_IsCutShortWhereTheSlotIsTakenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &fault.Error{Kind: fault.KindBusy, Reason: fault.ReasonSlotInUse, Op: "start", Err: errors.New("slot is active")}
		_, l, took, err := drained(t, func(session int64) error {
			if session > 1 {
				return busy
			}
			return nil
		}, false)
		if !errors.Is(err, ErrDrainCut) || !errors.Is(err, busy) || took > 10*time.Second {
			t.Errorf("ended after %s with %v", took, err)
		}
		if got := l.topics(); len(got) > 0 {
			t.Errorf("committed %q", got)
		}
	})
}
