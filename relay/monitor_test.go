package relay

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// fills is a row that takes more than the window of a mebibyte.
func fills() *wal.Batch {
	b := batch(150, 160, 1, "order/a/3")
	b.Bytes = 2 << 20
	return b
}

// What PostgreSQL keeps, and for how long, is what an outage of the brokers costs.
func TestMonitor_SaysWhatToDoAboutBrokersThatAreAway(t *testing.T) {
	next := "dial broker: refused; start the brokers, or correct kafka.brokers or the addresses that they advertise"
	safe := int64(3 << 30)
	for name, tt := range map[string]struct {
		seen *watch.Snapshot
		want string
	}{
		"slot not seen":   {&watch.Snapshot{}, next},
		"without a limit": {&watch.Snapshot{WALEnd: 5 << 20, Slot: catalog.SlotInfo{Restart: 3 << 20}}, next + "; nothing is lost: PostgreSQL keeps the WAL, 2.0 MiB so far"},
		"with a limit":    {&watch.Snapshot{WALEnd: 700, Slot: catalog.SlotInfo{Restart: 100, SafeWAL: &safe}}, next + "; nothing is lost before another 3.0 GiB of WAL: PostgreSQL keeps 600 B so far"},
		"slot lost":       {&watch.Snapshot{WALEnd: 700, Slot: catalog.SlotInfo{Restart: 100}, Drift: errors.New("lost")}, next},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(probe)
				p.snapshot.Store(tt.seen)
				b := &bench{server: newServer(), sink: new(sinktest.Recorder), probe: p, result: make(chan error, 1)}
				b.sink.SetReady(&sink.Error{Class: sink.Retry, Reason: "network", Err: errors.New("dial broker: refused")})
				b.start(t, Config{})
				pass(time.Minute)
				if st := b.relay.Status(); st.State != status.Reconnecting || st.Reason != "kafka_unreachable" || st.Message != tt.want {
					t.Errorf("at the start: %s %s: %s", st.State, st.Reason, st.Message)
				}
				if tt.seen.Drift == nil { // which would end the session
					b.sink.SetReady(nil)
					pass(time.Minute)
					b.sink.SetReachable(errors.New("dial broker: refused"))
					if st := b.relay.Status(); st.State != status.Streaming || st.Reason != "kafka_unreachable" || st.Message != tt.want {
						t.Errorf("while streaming: %s %s: %s", st.State, st.Reason, st.Message)
					}
				}
				b.stop(t)
			})
		})
	}
}

// Brokers that were away are not silent before they are back.
func TestMonitor_CountsSilenceFromWhenBrokersAnsweredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1"), fills), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		b.sink.SetReachable(errors.New("dial broker: refused"))
		b.start(t, Config{MaxInFlightBytes: 1 << 20})
		pass(38 * time.Second)
		if st := b.relay.Status(); st.State != status.Blocked || st.Reason != "kafka_unreachable" {
			t.Fatalf("without brokers: %s %s", st.State, st.Reason)
		}
		b.sink.SetReachable(nil)
		pass(9 * time.Second)
		if st := b.relay.Status(); st.State != status.Streaming || st.Reason != "" {
			t.Errorf("9s after they were back: %s %s: %s", st.State, st.Reason, st.Message)
		}
		pass(5 * time.Second)
		if st := b.relay.Status(); st.State != status.Blocked || st.Reason != "kafka_not_acknowledging" || !strings.Contains(st.Message, " for 14s: ") {
			t.Errorf("14s after they were back: %s %s: %s", st.State, st.Reason, st.Message)
		}
		b.sink.Release()
		b.stop(t)
	})
}

// A topic that was never sent to has its row wait in Send, with room in the window.
func TestMonitor_SaysWhyNothingIsReadWithRoomInTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/a/2"), fixed(150, 160, 1, "order/a/3"), fixed(170, 180, 1, "order/a/4")),
			sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		b.sink.Room(1)
		b.sink.SetReachable(errors.New("dial broker: refused"))
		b.start(t, Config{})
		pass(30 * time.Second)
		st := b.relay.Status()
		if st.State != status.Blocked || st.Reason != "kafka_unreachable" || !strings.Contains(st.Message, "has not sent to since it connected") || st.InFlightBytes*2 > st.InFlightLimitBytes {
			t.Errorf("without brokers: %s %s, %d bytes in flight: %s", st.State, st.Reason, st.InFlightBytes, st.Message)
		}
		b.sink.SetReachable(nil)
		pass(12 * time.Second)
		if st = b.relay.Status(); st.State != status.Blocked || st.Reason != "kafka_not_acknowledging" || !strings.Contains(st.Message, "have not said for 12s where the partitions of a topic are") {
			t.Errorf("with brokers: %s %s: %s", st.State, st.Reason, st.Message)
		}
		b.sink.Room(0)
		b.sink.Release()
		b.stop(t)
	})
}

// Standing by is what every second relay does all day.
func TestMonitor_LogsAStandbyOnceAndNotAsAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := outboxRoutes(t)
		busy := func(context.Context) (Source, error) {
			return nil, &fault.Error{Kind: fault.KindBusy, Reason: fault.ReasonSlotInUse, Op: "start", Err: errors.New("held by pid 7")}
		}
		var log bytes.Buffer
		r := New(Config{}, Parts{Source: busy, Router: routes, Sink: func() (sink.Sink, error) { return new(sinktest.Recorder), nil }}, Events{}, zerolog.New(&log))
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- r.Run(ctx) }()
		pass(time.Hour)
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"level":"info","state":"standby"`) || !strings.Contains(got, "held by pid 7") {
			t.Errorf("an hour of standing by logged:\n%s", got)
		}
		cancel()
		<-result
	})
}

// An outage is as old as it is, not as old as the stream that it met.
func TestMonitor_TellsTheAgeOfTheReasonAndItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := outboxRoutes(t)
		var log bytes.Buffer
		b := &bench{server: newServer(), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		parts := Parts{Source: b.server.open, Router: routes, Sink: func() (sink.Sink, error) { return b.sink, nil }}
		b.relay = New(Config{RetryMax: time.Second}, parts, Events{}, zerolog.New(zerolog.SyncWriter(&log)))
		ctx, cancel := context.WithCancel(t.Context())
		b.cancel = cancel
		go func() { b.result <- b.relay.Run(ctx) }()
		pass(22 * time.Second)
		began := b.relay.Status().Since
		b.sink.SetReachable(errors.New("dial broker: refused"))
		pass(14 * time.Second)
		st := b.relay.Status()
		if age := time.Since(st.ReasonSince).Round(time.Second); st.State != status.Streaming || st.Reason != "kafka_unreachable" || age != 14*time.Second || !st.Since.Equal(began) {
			t.Errorf("away: %s (%s) since %s, the reason for %s", st.State, st.Reason, st.Since, age)
		}
		b.sink.SetReachable(nil)
		pass(time.Second)
		if st = b.relay.Status(); st.Reason != "" || !st.ReasonSince.IsZero() || !st.Since.Equal(began) {
			t.Errorf("back: %s (%s) since %s, the reason since %s", st.State, st.Reason, st.Since, st.ReasonSince)
		}
		b.stop(t)
		_, after, _ := strings.Cut(log.String(), `"message":"reason changed"`)
		if !strings.Contains(log.String(), `"reason":"kafka_unreachable","err":"dial broker: refused`) ||
			!strings.Contains(after, `{"level":"info","state":"streaming","was":"kafka_unreachable","message":"the brokers answer again"}`) {
			t.Errorf("log:\n%s", log.String())
		}
	})
}
