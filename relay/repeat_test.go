package relay

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// open is a batch whose last transaction goes on in the next one.
func open(b func() *wal.Batch) func() *wal.Batch {
	return func() *wal.Batch {
		b := b()
		b.Open, b.Through = true, 0
		for i := range b.Rows {
			b.Rows[i].Txn.End = 0
		}
		return b
	}
}

// What was acknowledged in the transaction of a row that blocks, or behind it, comes again
// with the next start. It is counted as published, not as in flight, and as coming again.
func TestStop_WhileBlockedTellsWhatComesAgain(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		batches                    []func() *wal.Batch
		published, inFlight, again int
	}{
		"a row that cannot be routed":      {[]func() *wal.Batch{committed(now, 110, 120, "order/a/1", "order/a/2", "/a/3")}, 2, 1, 2},
		"first in its transaction":         {[]func() *wal.Batch{joined(committed(now, 110, 120, "order/a/1"), committed(now, 130, 140, "/a/2"))}, 1, 1, 0},
		"with whole transactions before":   {[]func() *wal.Batch{joined(committed(now, 110, 120, "order/a/1"), committed(now, 130, 140, "order/a/2", "/a/3"))}, 2, 1, 1},
		"in a transaction of many batches": {[]func() *wal.Batch{open(committed(now, 130, 140, "order/a/1", "order/a/2")), committed(now, 130, 140, "order/a/3", "/a/4")}, 3, 1, 3},
		"refused by the brokers":           {[]func() *wal.Batch{committed(now, 110, 120, "order/a/1", "order/a/bad", "order/b/3")}, 2, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{server: newServer(tt.batches...), sink: new(sinktest.Recorder), result: make(chan error, 1)}
				b.sink.Scatter(true)
				b.sink.Decide(func(r *record.Record) sinktest.Verdict {
					if string(r.Value) == "bad" {
						return sinktest.Fail(sink.Rejected, "invalid_record", errors.New("no"))
					}
					return sinktest.Verdict{}
				})
				b.start(t, Config{})
				pass(30 * time.Second)
				st := b.relay.Status()
				if durable := len(b.sink.Delivered()); st.State != status.Blocked || durable != tt.published || int(st.EventsPublished) != durable || st.InFlightEvents != tt.inFlight || st.EventsToRepeat != tt.again {
					t.Errorf("blocked: %s, published %d of %d durable, %d in flight, %d to repeat", st.State, st.EventsPublished, durable, st.InFlightEvents, st.EventsToRepeat)
				}
				blocked := st.Obstacle
				b.stop(t)
				if st := b.relay.Status(); st.EventsToRepeat != tt.again || int(st.EventsPublished) != tt.published {
					t.Errorf("stopped: published %d, %d to repeat", st.EventsPublished, st.EventsToRepeat)
				} else if o := st.Obstacle; o == nil || o.Reason != blocked.Reason || o.Row == nil || *o.Row != *blocked.Row || st.State != status.Stopping {
					t.Errorf("stopped: %s at %+v, blocked at %+v", st.State, o, blocked)
				}
			})
		})
	}
}

// Nothing is repeated by a stop that was not blocked.
func TestStop_RepeatsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{}, newServer(open(committed(time.Now(), 130, 140, "order/a/1", "order/a/2")), committed(time.Now(), 130, 140, "order/a/3")))
		pass(time.Second)
		if st := b.relay.Status(); st.EventsToRepeat != 0 || st.EventsPublished != 3 || st.InFlightEvents != 0 {
			t.Errorf("%d to repeat, %d published, %d in flight", st.EventsToRepeat, st.EventsPublished, st.InFlightEvents)
		}
		b.stop(t)
	})
}

// A log of the last ten minutes shows a relay that has been blocked for hours, and alerts on
// errors see it.
func TestLog_RepeatsThatTheRelayIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := outboxRoutes(t)
		var log bytes.Buffer
		safe := int64(3 << 30)
		p := new(probe)
		p.snapshot.Store(&watch.Snapshot{WALEnd: 5 << 20, Slot: catalog.SlotInfo{Restart: 3 << 20, SafeWAL: &safe}})
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/bad")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		healed := time.Now().Add(3*time.Minute + 30*time.Second)
		b.sink.Decide(func(*record.Record) sinktest.Verdict {
			if time.Now().Before(healed) {
				return sinktest.Fail(sink.Blocked, "unknown_topic", errors.New("topic order-events does not exist; create it"))
			}
			return sinktest.Verdict{}
		})
		parts := Parts{Source: b.server.open, Router: routes, Probe: p, Sink: func() (sink.Sink, error) { return b.sink, nil }}
		b.relay = New(Config{RetryMax: time.Second}, parts, Events{}, zerolog.New(zerolog.SyncWriter(&log)))
		ctx, cancel := context.WithCancel(t.Context())
		b.cancel = cancel
		go func() { b.result <- b.relay.Run(ctx) }()
		pass(4 * time.Minute)
		b.stop(t)
		const at = "deliver row 1 of the transaction committing at 0/6E (public.outbox, row LSN 0/6D): topic order-events does not exist; create it"
		for want, times := range map[string]int{
			`"message":"blocked: unknown_topic: ` + at:                                                                                 1,
			`{"level":"error","state":"blocked","reason":"unknown_topic","message":"still blocked, for `:                               3,
			`, for 3m0s: unknown_topic: ` + at + `; PostgreSQL keeps 2.0 MiB of WAL for the slot, which is lost after another 3.0 GiB`: 1,
			`{"level":"info","state":"streaming","from":"blocked","was":"unknown_topic","message":"no longer blocked, after 3m3`:       1,
		} {
			if got := strings.Count(log.String(), want); got != times {
				t.Errorf("%d times, want %d: %s", got, times, want)
			}
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
}

func TestLog_RepeatsWhatToDoAboutBrokersThatAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := outboxRoutes(t)
		var log bytes.Buffer
		b := &bench{server: newServer(), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.SetReady(&sink.Error{Class: sink.Retry, Reason: "network", Err: errors.New("dial broker: refused")})
		parts := Parts{Source: b.server.open, Router: routes, Sink: func() (sink.Sink, error) { return b.sink, nil }}
		b.relay = New(Config{RetryMax: time.Second}, parts, Events{}, zerolog.New(zerolog.SyncWriter(&log)))
		ctx, cancel := context.WithCancel(t.Context())
		b.cancel = cancel
		go func() { b.result <- b.relay.Run(ctx) }()
		pass(10*time.Minute + 10*time.Second)
		b.stop(t)
		want := `{"level":"warn","state":"reconnecting","reason":"kafka_unreachable","message":"still reconnecting, for 10m0s: kafka_unreachable: dial broker: refused; start the brokers, or correct kafka.brokers`
		if got := strings.Count(log.String(), `"message":"still reconnecting, for `); got != 10 || !strings.Contains(log.String(), want) {
			t.Errorf("%d reminders in ten minutes:\n%s", got, log.String())
		}
	})
}
