package admin

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/figures"
	"github.com/cdc-relay/cdc-relay/relay/status"
)

// idle is a relay that a test has do something.
type idle struct {
	mu    sync.Mutex
	st    status.Status
	looks atomic.Int64 // at its status
}

func (i *idle) show() status.Status {
	i.looks.Add(1)
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.st
}

func (i *idle) change(change func(*status.Status)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(&i.st)
}

// lying is a console over an idle relay that runs, in a bubble.
func lying(t *testing.T) (*client, *Console, *idle, *Waker) {
	relay := &idle{st: status.Status{State: status.Streaming, LSN: status.LSNs{Server: 1}, LagBytes: new(int64(7))}}
	of := tools()
	of.Waker = NewWaker()
	c, console := consoleOf(t, Config{Listen: local}, relay.show, of)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); console.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return c, console, relay, of.Waker
}

// seriesOf are those of a series since a time; -1: nothing is known.
func seriesOf(t *testing.T, c *client, series string, since time.Time) (all []float64) {
	t.Helper()
	var got struct{ Series map[string][]*float64 }
	w := c.get("/api/v1/history?step=1s&series=" + series + "&since=" + since.UTC().Format(time.RFC3339))
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for _, v := range got.Series[series] {
		if v == nil {
			all = append(all, -1)
			continue
		}
		all = append(all, *v)
	}
	return all
}

// A relay in which nothing happens is hardly looked at, and its figures have no gap.
func TestConsole_SamplesLessOftenWhileNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, relay, _ := lying(t)
		pass(15 * time.Second)
		begin, before := time.Now(), relay.looks.Load()
		pass(5 * time.Minute)
		if looks := relay.looks.Load() - before; looks < 30 || looks > 34 {
			t.Errorf("%d looks in five minutes, want one every 9 s", looks)
		}
		all := seriesOf(t, c, "lag_bytes", begin)
		if len(all) < 300 {
			t.Fatalf("%d figures", len(all))
		}
		for i, v := range all[:299] {
			if v != 7 {
				t.Fatalf("second %d: %v", i, v)
			}
		}
	})
}

// The second in which rows begin to pass is the one that shows them.
func TestConsole_SamplesEachSecondOnceRowsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, relay, waker := lying(t)
		pass(time.Minute + 4300*time.Millisecond)
		begin := time.Now()
		relay.change(func(s *status.Status) { s.RowsRead, s.EventsPublished = 1000, 1000 })
		waker.Wake()
		pass(1500 * time.Millisecond)
		all := seriesOf(t, c, "received", begin.Add(-20*time.Second))
		sum, most := 0.0, 0.0
		for _, v := range all {
			sum, most = sum+v, max(most, v)
		}
		if most != 1000 || sum != 1000 {
			t.Errorf("1000 rows in a moment are shown as %v", all)
		}
		before := relay.looks.Load()
		for range 20 {
			relay.change(func(s *status.Status) { s.RowsRead++ })
			pass(time.Second)
		}
		if looks := relay.looks.Load() - before; looks < 19 {
			t.Errorf("%d looks in 20 seconds with rows", looks)
		}
	})
}

// Whatever is not well is sampled each second, and so is a relay at which somebody looks.
func TestConsole_SamplesEachSecondWhileThereIsSomethingToSee(t *testing.T) {
	for name, change := range map[string]func(*status.Status){
		"blocked":        func(s *status.Status) { s.State, s.Reason = status.Blocked, "unknown_topic" },
		"no broker":      func(s *status.Status) { s.Reason = "kafka_unreachable" },
		"rows in flight": func(s *status.Status) { s.InFlightEvents = 1 },
		"a backlog":      func(s *status.Status) { s.CatchUp = new(status.CatchUp) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _, relay, waker := lying(t)
				pass(time.Minute)
				relay.change(change)
				waker.Wake()
				before := relay.looks.Load()
				pass(30 * time.Second)
				if looks := relay.looks.Load() - before; looks < 29 {
					t.Errorf("%d looks in 30 seconds", looks)
				}
				_ = c
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c, console, relay, _ := lying(t)
		pass(time.Minute)
		relay.change(func(s *status.Status) { s.LagBytes = new(int64(9)) })
		ctx, stop := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "GET", "/api/v1/stream?kinds=charts", nil)
		r.Host = local
		w, done := httptest.NewRecorder(), make(chan struct{})
		go func() { defer close(done); c.handler.ServeHTTP(w, r) }()
		synctest.Wait()
		if at, seen := console.lastSample(); !at.Equal(time.Now()) || seen[figures.LagBytes] != 9 {
			t.Errorf("who begins to look is shown what was %s ago: %v", time.Since(at), seen[figures.LagBytes])
		}
		before := relay.looks.Load()
		pass(30 * time.Second)
		if looks := relay.looks.Load() - before; looks < 29 {
			t.Errorf("%d looks in 30 seconds at which somebody looks", looks)
		}
		stop()
		<-done
		pass(30 * time.Second)
		before = relay.looks.Load()
		pass(time.Minute)
		if looks := relay.looks.Load() - before; looks > 8 {
			t.Errorf("%d looks in a minute after the page was closed", looks)
		}
	})
}

// A process that was suspended has no figures of that time.
func TestConsole_InventsNoFiguresOfATimeInWhichItStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, console, _, _ := lying(t)
		pass(time.Minute)
		console.mu.Lock()
		console.sampled.at = console.sampled.at.Add(-time.Hour)
		console.mu.Unlock()
		console.Sample(time.Now())
		for i, v := range seriesOf(t, c, "lag_bytes", time.Now().Add(-15*time.Minute))[:13*60] {
			if v != -1 {
				t.Fatalf("%d s before: a figure of a time in which nothing was looked at: %v", 15*60-i, v)
			}
		}
	})
}

func TestWaker_IsOptional(t *testing.T) {
	var none *Waker
	none.Wake()
	none.set(true)
	if none.calls() != nil {
		t.Error("nobody calls")
	}
}
