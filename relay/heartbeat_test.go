package relay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/debezium"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// startBeating runs a relay that writes a heartbeat each second to hb.app.
func startBeating(t *testing.T, server *fakeServer) *bench {
	t.Helper()
	b := &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1)}
	routes, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Preset: "outbox"}, {Table: "public.other", Connector: debezium.Config{
		{Name: "topic.prefix", Value: "app"}, {Name: "heartbeat.interval.ms", Value: "1000"}, {Name: "topic.heartbeat.prefix", Value: "hb"},
		{Name: "key.converter", Value: "org.apache.kafka.connect.storage.StringConverter"}, {Name: "value.converter", Value: "org.apache.kafka.connect.storage.StringConverter"},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	b.relay = New(Config{}, Parts{Source: server.open, Router: routes, Sink: func() (sink.Sink, error) { return b.sink, nil }}, Events{}, zerolog.Nop())
	ctx, cancel := context.WithCancel(t.Context())
	b.cancel = cancel
	go func() { b.result <- b.relay.Run(ctx) }()
	return b
}

func (b *bench) beats() int { return strings.Count(b.values(), "Struct{ts_ms=") }

func TestRelay_HeartbeatsComeByTheClockAndConfirmNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBeating(t, newServer())
		pass(3500 * time.Millisecond)
		if got := b.beats(); got != 3 {
			t.Errorf("%d heartbeats in 3.5 s", got)
		}
		if got := b.server.position(); got != 100 {
			t.Errorf("confirmed %s without a row", got)
		}
		b.stop(t)
	})
}

// A heartbeat that fails must not take rows with it.
func TestRelay_RowsGetPastAHeartbeatThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBeating(t, newServer())
		b.sink.Decide(func(r *record.Record) sinktest.Verdict {
			if r.Topic == "hb.app" {
				return sinktest.Fail(sink.Rejected, "topic_missing", errors.New("topic hb.app does not exist"))
			}
			return sinktest.Verdict{}
		})
		pass(1500 * time.Millisecond)
		b.server.more <- fixed(110, 120, 1, "order/a/1")
		pass(20 * time.Second)
		if got := b.values(); got != "1" || b.server.position() != 120 {
			t.Errorf("delivered %q, confirmed %s", got, b.server.position())
		}
		b.stop(t)
	})
}

// Without a row nothing else would have the sink take records again.
func TestRelay_HeartbeatsGoOnAfterOneThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBeating(t, newServer())
		healed := time.Now().Add(2500 * time.Millisecond)
		b.sink.Decide(func(*record.Record) sinktest.Verdict {
			if time.Now().Before(healed) {
				return sinktest.Fail(sink.Rejected, "topic_missing", errors.New("topic hb.app does not exist"))
			}
			return sinktest.Verdict{}
		})
		pass(5500 * time.Millisecond)
		if got := b.beats(); got != 3 {
			t.Errorf("%d heartbeats in the 3 s after it healed", got)
		}
		b.stop(t)
	})
}

// A heartbeat whose topic no broker places has rows wait behind it, as a row would.
func TestRelay_AHeartbeatThatWaitsForItsTopicIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBeating(t, newServer(fixed(110, 120, 1, "order/a/1")))
		b.sink.Hold()
		b.sink.Room(1) // which the row takes
		pass(1500 * time.Millisecond)
		for i := range 3 {
			at := wal.LSN(130 + 20*i)
			b.server.more <- fixed(at, at+10, 1, "order/a/2")
		}
		pass(20 * time.Second)
		if st := b.relay.Status(); st.State != status.Blocked || st.Reason != "kafka_not_acknowledging" {
			t.Errorf("nothing is read for 20s: %s %s", st.State, st.Reason)
		}
		b.sink.Room(0)
		b.sink.Release()
		b.stop(t)
	})
}

// Heartbeats that no broker answers do not pile up.
func TestRelay_HeartbeatsWaitForTheAnswerToTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBeating(t, newServer())
		b.sink.Hold()
		pass(time.Hour + time.Second/2)
		if got := b.sink.Counts().Sends; got != 1 {
			t.Errorf("%d sets of heartbeats wait for an answer", got)
		}
		b.sink.Release()
		pass(2 * time.Second)
		if got := b.beats(); got != 3 {
			t.Errorf("%d heartbeats 2 s after the brokers answered again, want 3", got)
		}
		b.stop(t)
	})
}
