package upkeep

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/rs/zerolog"
)

// hand is a worker whose passes are told.
type hand struct {
	opened, closed, passes atomic.Int32
	once                   func(ctx context.Context, table int, tell func(Done)) (Done, error)
}

func (h *hand) Once(ctx context.Context, table int, tell func(Done)) (Done, error) {
	h.passes.Add(1)
	return h.once(ctx, table, tell)
}
func (h *hand) Close() { h.closed.Add(1) }

func (h *hand) plan(every time.Duration, tables ...string) Beside {
	p := Beside{Job: "retention", Every: every, Open: func(context.Context) (Worker, error) { h.opened.Add(1); return h, nil }}
	for _, name := range tables {
		p.Tables = append(p.Tables, Table{name, "delete"})
	}
	return p
}

// lines are a log that may be read while it is written.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

// beside runs a loop until the test ends.
func beside(t *testing.T, plan Beside, holds func() (bool, string)) (*Loop, *lines) {
	t.Helper()
	log := new(lines)
	l := NewLoop(plan, holds, zerolog.New(log))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { l.Run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	return l, log
}

func counts(h *hand) []int32 { return []int32{h.opened.Load(), h.closed.Load(), h.passes.Load()} }

func always() (bool, string) { return true, "" }

func TestLoop_WorksWhileTheProcessHoldsTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hand{once: func(context.Context, int, func(Done)) (Done, error) { return Done{Rows: 2}, nil }}
		var holds atomic.Bool
		l, _ := beside(t, h.plan(time.Minute, "a", "b"), func() (bool, string) { return holds.Load(), "slot_in_use" })
		pass(t, time.Hour)
		if m := l.Status()[1]; h.opened.Load() != 0 || m.State != status.JobWaiting || m.Reason != "slot_in_use" || m.Rows != 0 {
			t.Fatalf("a standby works: %d opened, %+v", h.opened.Load(), m)
		}
		holds.Store(true)
		pass(t, 90*time.Second)
		if m := l.Status()[1]; h.opened.Load() != 1 || h.passes.Load() != 4 || m.State != status.JobIdle || m.Rows != 4 || m.LastPass.IsZero() {
			t.Fatalf("%+v, %+v", counts(h), m)
		}
		holds.Store(false)
		pass(t, 2*time.Second)
		if m := l.Status()[0]; h.closed.Load() != 1 || m.State != status.JobWaiting {
			t.Fatalf("it goes on without the slot: %v, %+v", counts(h), m)
		}
	})
}

func TestLoop_ASlotThatIsLostEndsThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var holds atomic.Bool
		holds.Store(true)
		var cause atomic.Value
		h := new(hand)
		h.once = func(ctx context.Context, _ int, tell func(Done)) (Done, error) {
			for n := 1; ; n++ {
				tell(Done{Rows: n})
				if err := wait(ctx, time.Second); err != nil {
					cause.Store(err)
					return Done{Rows: n}, err
				}
			}
		}
		l, log := beside(t, h.plan(time.Minute, "a"), func() (bool, string) { return holds.Load(), "" })
		pass(t, 10*time.Second)
		if m := l.Status()[0]; m.State != status.JobWorking || m.Rows < 9 {
			t.Errorf("%+v", m)
		}
		holds.Store(false)
		pass(t, 3*time.Second)
		if m := l.Status()[0]; cause.Load() == nil || m.State != status.JobWaiting || m.Rows < 9 || h.closed.Load() != 1 {
			t.Errorf("%v, %+v, %+v", cause.Load(), m, counts(h))
		}
		if strings.Contains(log.String(), "paused") {
			t.Error(log)
		}
	})
}

func TestLoop_ShowsWhatIsInTheWayAndTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(hand)
		refused := &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonNoIndex, Op: "look at", Err: errors.New("no index"), Hint: "make one"}
		busy := &fault.Error{Kind: fault.KindBusy, Reason: fault.ReasonMaintenanceInUse, Op: "lock", Err: errors.New("another one")}
		var fixed atomic.Bool
		h.once = func(_ context.Context, table int, tell func(Done)) (Done, error) {
			switch {
			case table == 1:
				return Done{}, busy
			case !fixed.Load():
				tell(Done{Rows: 5})
				return Done{Rows: 5}, refused
			}
			return Done{Rows: 1, Held: 3}, nil
		}
		l, log := beside(t, h.plan(time.Second, "a", "b"), always)
		pass(t, 25*time.Second)
		shown := l.Status()
		if a := shown[0]; a.State != status.JobPaused || a.Reason != fault.ReasonNoIndex || !strings.Contains(a.Message, "make one") || a.Rows != 15 || !a.LastPass.IsZero() {
			t.Errorf("%+v", a)
		}
		if b := shown[1]; b.State != status.JobWaiting || b.Reason != fault.ReasonMaintenanceInUse {
			t.Errorf("%+v", b)
		}
		if h.passes.Load() != 6 || h.opened.Load() != 3 || h.closed.Load() != 3 {
			t.Errorf("it does not wait between tries, or keeps a connection that may be broken: %v", counts(h))
		}
		fixed.Store(true)
		pass(t, 10*time.Second)
		if a := l.Status()[0]; a.State != status.JobIdle || a.Reason != "" || a.Message != "" || a.HeldBack[status.HeldByLetter] != 3 {
			t.Errorf("%+v", a)
		}
		if n := strings.Count(log.String(), "is paused"); n != 3 || strings.Count(log.String(), "delivered rows goes on") != 3 { // it goes on when rows are done
			t.Errorf("logged %d times:\n%s", n, log)
		}
	})
}

// It keeps its pace and its connection, and says so once.
func TestLoop_GoesOnBesideAPartitionThatIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found := new(Found)
		found.LeaveAlone(wal.Table{Schema: "public", Name: "a_1"})
		found.LeaveAlone(wal.Table{Schema: "public", Name: "a_2"})
		var fixed atomic.Bool
		h := &hand{once: func(_ context.Context, _ int, tell func(Done)) (Done, error) {
			tell(Done{Rows: 1})
			if fixed.Load() {
				return Done{Rows: 1}, nil
			}
			return Done{Rows: 1, Held: 3}, found.LeftAlone()
		}}
		l, log := beside(t, h.plan(time.Second, "a"), always)
		pass(t, 25*time.Second)
		m := l.Status()[0]
		if m.State != status.JobPaused || m.Reason != fault.ReasonPartitionUnlogged || !strings.Contains(m.Message, "public.a_1") || !strings.Contains(m.Message, "public.a_2") {
			t.Errorf("%+v", m)
		}
		if m.Rows < 20 || m.LastPass.IsZero() || m.HeldBack[status.HeldByLetter] != 3 || h.opened.Load() != 1 || h.closed.Load() != 0 {
			t.Errorf("it does not work as beside others: %+v, %v", m, counts(h))
		}
		if text := log.String(); strings.Count(text, "is paused") != 1 || strings.Contains(text, "delivered rows goes on") || strings.Count(text, "rows done") > 1 {
			t.Error(text)
		}
		fixed.Store(true)
		pass(t, 2*time.Second)
		if m := l.Status()[0]; m.State != status.JobIdle || m.Message != "" || strings.Count(log.String(), "delivered rows goes on") != 1 {
			t.Errorf("%+v\n%s", m, log)
		}
	})
}

func TestLoop_WhatCannotBeOpenedPausesAllTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := (&hand{}).plan(time.Minute, "a", "b")
		plan.Open = func(context.Context) (Worker, error) {
			return nil, &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "connect", Err: errors.New("refused")}
		}
		l, log := beside(t, plan, always)
		pass(t, 10*time.Minute)
		for _, m := range l.Status() {
			if m.State != status.JobPaused || m.Reason != fault.ReasonNetwork {
				t.Errorf("%+v", m)
			}
		}
		if n := strings.Count(log.String(), "is paused"); n != 2 {
			t.Errorf("logged %d times:\n%s", n, log)
		}
	})
}

// pass lets the bubble's time go on.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	if err := wait(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}
