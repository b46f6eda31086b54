package status

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/rs/zerolog"
)

// reachedSink is one whose brokers answer.
type reachedSink struct{ sink.Sink }

func (reachedSink) Reachable() error { return nil }

// stuckSession reads and acknowledges, and its position stands still.
type stuckSession struct {
	fixedSession
	received, confirmed wal.LSN
	stats               checkpoint.Stats
	repeat              int
	moved               time.Time
}

func (s *stuckSession) Positions() LSNs {
	return LSNs{Server: Position(s.server), Received: Position(s.received), Confirmed: Position(s.confirmed)}
}
func (s *stuckSession) Stats() checkpoint.Stats       { return s.stats }
func (s *stuckSession) ToRepeat(checkpoint.Stats) int { return s.repeat }
func (s *stuckSession) LastConfirm() time.Time        { return s.moved }

// stuck looks at the slot every ten seconds for a time, in a bubble.
func stuck(s *stuckSession, log *strings.Builder, walEnd func(look int) wal.LSN, looks int) *Monitor {
	b := NewMonitor(Pipeline{Slot: "cdc_relay"}, zerolog.New(log), nil)
	b.Reached(true, true)
	b.SetSink(reachedSink{})
	b.SetSession(s)
	b.SetState(Streaming, "", "")
	for i := range looks {
		b.BeginSnapshot()(&watch.Snapshot{WALEnd: walEnd(i), Slot: catalog.SlotInfo{Confirmed: 0x1000, Restart: 0x800}})
		b.Tick(time.Now())
		<-time.After(10 * time.Second)
	}
	return b
}

var errAway = errors.New("connection refused")

const mib = 1 << 20

// growing is a server that writes a mebibyte between two looks.
func growing(look int) wal.LSN { return wal.LSN(0x1000 + look*mib) }

// Connected and streaming is not enough: a position that stands still while WAL comes is a state of its own, with
// what is known of why.
func TestNotMoving_IsSaidWithWhatIsKnownOfWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		session stuckSession
		why     string
	}{
		"rows are acknowledged behind one that is not": {stuckSession{received: 5 * mib, confirmed: 0x1000, repeat: 40, stats: checkpoint.Stats{Rows: 41}}, "40 rows are acknowledged and wait for an earlier row"},
		"nothing is acknowledged":                      {stuckSession{received: 5 * mib, confirmed: 0x1000, stats: checkpoint.Stats{Rows: 7}}, "7 rows are in flight and not acknowledged"},
		"nothing more arrives of a transaction":        {stuckSession{received: 5 * mib, confirmed: 0x1000}, "the relay has read to 0/500000, where no transaction has ended, and nothing more arrives"},
		"PostgreSQL sends nothing":                     {stuckSession{received: 0x1000, confirmed: 0x1000}, "the server sends nothing"},
		"confirmations do not arrive":                  {stuckSession{received: 5 * mib, confirmed: 5 * mib}, "the relay has confirmed 0/500000, which does not arrive there"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				b := stuck(&tt.session, &log, growing, 26)
				st := b.Status()
				if st.State != Streaming || st.Reason != "confirmed_not_moving" || !strings.Contains(st.Message, tt.why) || !strings.Contains(st.Message, "the slot's confirmed position in PostgreSQL has been 0/1000 for 4m10s") {
					t.Errorf("%s, %s: %s", st.State, st.Reason, st.Message)
				}
				if want := "Streaming, but the confirmed position has not moved for 4m10s (confirmed_not_moving); nothing is lost: PostgreSQL keeps 25.0 MiB of WAL"; !strings.HasPrefix(st.Headline, want) {
					t.Errorf("headline: %s", st.Headline)
				}
				if st.Obstacle == nil || st.Obstacle.Reason != "confirmed_not_moving" || st.NotMoving == nil || *st.NotMoving != 250 {
					t.Errorf("obstacle %+v, %v", st.Obstacle, st.NotMoving)
				}
				if n := strings.Count(log.String(), `"reason":"confirmed_not_moving"`); n < 2 || n > 4 {
					t.Errorf("the log has it %d times: %s", n, log.String())
				}
			})
		})
	}
}

// It ends with the position's first move, also before PostgreSQL was looked at again.
func TestNotMoving_EndsWithTheFirstMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &stuckSession{received: 5 * mib, confirmed: 0x1000}
		b := stuck(s, &log, growing, 20)
		if b.Status().Reason == "" {
			t.Fatal("it moves")
		}
		s.confirmed, s.moved = 5*mib, time.Now()
		b.Tick(time.Now())
		if st := b.Status(); st.Reason != "" || st.NotMoving != nil || st.Obstacle != nil {
			t.Errorf("%s: %s", st.Reason, st.Message)
		}
		if !strings.Contains(log.String(), "the confirmed position moves again") {
			t.Error(log.String())
		}
	})
}

func TestNotMoving_IsNotSaidOf(t *testing.T) {
	for name, tt := range map[string]struct {
		walEnd func(int) wal.LSN
		looks  int
		change func(*Monitor)
	}{
		"a server at rest":            {func(int) wal.LSN { return 0x1000 }, 60, nil},
		"WAL that may have no row":    {func(int) wal.LSN { return 0x1000 + mib/2 }, 60, nil},
		"less than two minutes":       {growing, 12, nil},
		"a server that is not there":  {growing, 30, func(b *Monitor) { b.Unanswered(errAway) }},
		"a relay that is blocked":     {growing, 30, func(b *Monitor) { b.SetState(Blocked, "unknown_topic", "no topic") }},
		"a relay that has no session": {growing, 30, func(b *Monitor) { b.SetSession(nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				b := stuck(&stuckSession{received: 5 * mib, confirmed: 0x1000}, &log, tt.walEnd, tt.looks)
				if tt.change != nil {
					tt.change(b)
				}
				if st := b.Status(); st.Reason == "confirmed_not_moving" || st.NotMoving != nil {
					t.Errorf("%s: %s", st.Headline, st.Message)
				}
			})
		})
	}
}
