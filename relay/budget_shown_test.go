package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// writing is the probe of a server that writes WAL at a steady pace, and keeps some of it.
type writing struct {
	began  time.Time
	pace   int64 // bytes a second
	keep   int64 // max_slot_wal_keep_size; negative: no limit
	server *fakeServer
	follow bool // the slot is where the server is
}

func (w *writing) end() int64 { return 1000 + w.pace*int64(time.Since(w.began)/time.Second) }

func (w *writing) Read(context.Context) (*watch.Snapshot, error) {
	at := w.server.position()
	s := &watch.Snapshot{WALEnd: wal.LSN(w.end()), Slot: catalog.SlotInfo{Active: true, WALStatus: "reserved", Confirmed: at, Restart: at}}
	if w.follow {
		s.Slot.Restart = s.WALEnd
	}
	if w.keep >= 0 {
		safe := max(0, w.keep-int64(s.WALEnd-s.Slot.Restart))
		s.Slot.SafeWAL = &safe
	}
	return s, nil
}

func (w *writing) Close() {}

// journal is a log that is read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), text)
}

// budget are the lines about it.
func (j *journal) budget(t *testing.T) (lines []map[string]any) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if message, _ := fields["message"].(string); strings.HasPrefix(message, "the slot does not move") {
			lines = append(lines, fields)
		}
	}
	return lines
}

const mebibyte = 1 << 20

func TestBudget_IsShownInStatusAndLogWhileTheSlotStandsStill(t *testing.T) {
	const hour, past = 3600, 130 * 60 // in seconds
	for name, c := range map[string]struct {
		keep     int64
		follows  bool
		warnings int
	}{
		// At 1 MiB/s: four hours to go, of which a bit more than two pass. Told in the second minute and at each half.
		"with a limit":     {keep: 4 * hour * mebibyte, warnings: 2},
		"without a limit":  {keep: -1, warnings: 3}, // at 1, 2 and 4 GiB
		"a slot that goes": {keep: 4 * hour * mebibyte, follows: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				routes := outboxRoutes(t)
				log := new(journal)
				server, to := newServer(), new(sinktest.Recorder)
				w := &writing{began: time.Now(), pace: mebibyte, keep: c.keep, server: server, follow: c.follows}
				cfg := Config{}
				cfg.Replication.Slot = "orders"
				r := New(cfg, Parts{Source: server.open, Router: routes, Probe: w, Sink: func() (sink.Sink, error) { return to, nil }}, Events{}, zerolog.New(log))
				ctx, cancel := context.WithCancel(t.Context())
				result := make(chan error, 1)
				go func() { result <- r.Run(ctx) }()
				defer func() { // a failure may leave it in a drain
					r.Abort()
					cancel()
				}()
				pass(time.Second)
				if st := r.Status(); st.SlotState != nil && (st.SlotState.SafeSeconds != nil || st.SlotState.WALPace != 0) {
					t.Errorf("after one look: %+v", st.SlotState)
				}
				if !c.follows {
					to.Hold()
				}
				server.more <- fixed(1100, 1200, 1, "order/a/1")
				for range 50 { // not yet a minute
					pass(time.Second)
					if c.follows {
						server.more <- fixed(0, wal.LSN(w.end()), 1)
					}
				}
				if n := len(log.budget(t)); n != 0 {
					t.Errorf("told %d times within a minute", n)
				}
				for range past - 51 {
					pass(time.Second)
					if c.follows {
						server.more <- fixed(0, wal.LSN(w.end()), 1)
					}
				}
				st := r.Status().SlotState
				if math.Abs(float64(st.WALPace)-mebibyte) > mebibyte/20 {
					t.Errorf("%d bytes a second, want about %d", st.WALPace, mebibyte)
				}
				text, err := json.Marshal(r.Status())
				if err != nil {
					t.Fatal(err)
				}
				var shown struct {
					Slot struct {
						Seconds *float64 `json:"safe_wal_seconds"`
						Safe    *int64   `json:"safe_wal_bytes"`
						Pace    int64    `json:"wal_bytes_per_second"`
						Kept    int64    `json:"retained_wal_bytes"`
					} `json:"slot_state"`
				}
				if err := json.Unmarshal(text, &shown); err != nil {
					t.Fatal(err)
				}
				if shown.Slot.Pace != st.WALPace {
					t.Errorf("the JSON says %d bytes a second, the status %d", shown.Slot.Pace, st.WALPace)
				}
				left := float64(4*hour - past)
				if c.follows {
					left = 4 * hour
				}
				switch seconds := shown.Slot.Seconds; {
				case c.keep < 0:
					if seconds != nil || shown.Slot.Safe != nil {
						t.Errorf("a time is shown without a limit: %s", text)
					}
					if kept := shown.Slot.Kept; kept < (past-20)*mebibyte {
						t.Errorf("%d bytes are shown as kept", kept)
					}
				case seconds == nil || math.Abs(*seconds-left) > left/20:
					t.Errorf("%v seconds, want about %v: %s", seconds, left, text)
				}
				told := log.budget(t)
				if len(told) != c.warnings {
					t.Fatalf("told %d times, want %d: %v", len(told), c.warnings, told)
				}
				for _, line := range told {
					lasts, limited := line["lasts"].(string)
					if line["level"] != "warn" || line["slot"] != "orders" || limited != (c.keep >= 0) || line["retained_wal_bytes"] == nil {
						t.Errorf("told %v", line)
					}
					if pace, _ := line["wal_bytes_per_second"].(float64); math.Abs(pace-mebibyte) > mebibyte/20 {
						t.Errorf("told a pace of %v", pace)
					}
					if d, err := time.ParseDuration(lasts); limited && (err != nil || d > 4*time.Hour || d < 110*time.Minute) {
						t.Errorf("told that it lasts %q", lasts)
					}
				}
				to.Release()
				pass(time.Second)
				cancel()
				if err := <-result; err != nil {
					t.Errorf("stop: %v", err)
				}
			})
		})
	}
}

// stalled is the probe of a server that answers once, and is silent then.
type stalled struct {
	probe
	answered bool
}

func (p *stalled) Read(ctx context.Context) (*watch.Snapshot, error) {
	if !p.answered {
		p.answered = true
		return p.probe.Read(ctx)
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// A look that is overdue shows a silent server before it has failed.
func TestBudget_IsOldWhileALookIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(stalled)
		p.snapshot.Store(&watch.Snapshot{WALEnd: 100 + 2<<20, Slot: catalog.SlotInfo{Confirmed: 100, Restart: 100}})
		b := &bench{server: newServer(), sink: new(sinktest.Recorder), probe: p, result: make(chan error, 1)}
		b.start(t, Config{})
		pass(8 * time.Second)
		if st := b.relay.Status(); !st.SourceConnected || st.RetainedWALBytes != 2<<20 {
			t.Errorf("while the look is on its way: connected %t, %d retained", st.SourceConnected, st.RetainedWALBytes)
		}
		pass(3 * time.Second)
		if st := b.relay.Status(); st.SourceConnected || st.SlotState != nil || st.LastLook == nil || st.LastLook.RetainedWALBytes != 2<<20 {
			t.Errorf("while it is overdue: connected %t, slot %+v, last look %+v", st.SourceConnected, st.SlotState, st.LastLook)
		}
		b.stop(t)
	})
}
