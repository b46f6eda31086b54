package relay

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
)

// rejecting is a relay that sets rejected rows aside.
type rejecting struct {
	*bench
	log  *topicLog
	most int // keys that may be parked; 0 is the usual number
}

func newRejecting(server *fakeServer) *rejecting {
	r := &rejecting{bench: &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1)}}
	server.origin = wal.Origin{SystemID: "7000", Timeline: 1}
	r.log = &topicLog{sinks: []*sinktest.Recorder{r.sink}}
	return r
}

// again starts another process, after a stop.
func (r *rejecting) again(t *testing.T, cfg Config) {
	t.Helper()
	r.sink = new(sinktest.Recorder)
	r.sink.Decide(refuseBad)
	r.log.mu.Lock()
	r.log.sinks = append(r.log.sinks, r.sink)
	r.log.mu.Unlock()
	r.run(t, cfg)
}

// run starts a process.
func (r *rejecting) run(t *testing.T, cfg Config) {
	t.Helper()
	routed := cfg.Router
	routed.Reserved = record.Reserved{{Name: cfg.DeadLetterTopic, For: "dead letters"}}
	routes := outboxRoutes(t, routed)
	cfg.RetryMin, cfg.RetryMax = max(cfg.RetryMin, 10*time.Millisecond), max(cfg.RetryMax, time.Second)
	cfg.Replication.Slot = "orders"
	parts := Parts{Source: r.server.open, Router: routes, Sink: func() (sink.Sink, error) { return r.sink, nil }}
	if r.wrap != nil {
		parts.Sink = func() (sink.Sink, error) { return r.wrap(r.sink), nil }
	}
	if cfg.ParkKey {
		parts.Journal = r.log.reader()
	}
	r.relay = New(cfg, parts, Events{}, zerolog.Nop())
	if r.most > 0 {
		few := r.relay.cfg.deliveryConfig()
		few.MaxParked = r.most
		r.relay.shared = delivery.New(few, routes, nil, parts.Journal, r.relay.monitor, delivery.Events{}, zerolog.Nop())
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.result <- r.relay.Run(ctx) }()
}

// direct are the values that went to their own topics.
func (r *rejecting) direct() string {
	var out []string
	for _, d := range r.log.delivered() {
		if d.Topic != lettersTopic {
			out = append(out, string(d.Value))
		}
	}
	return strings.Join(out, " ")
}

// told describes the dead letters: reason:value.
func (r *rejecting) told(t *testing.T) string {
	t.Helper()
	var out []string
	for _, l := range r.log.letters(t) {
		out = append(out, l.Reason+":"+string(l.Record.Value))
	}
	return strings.Join(out, " ")
}

// refuseBad has the brokers refuse each record whose value begins with bad, in the
// topics of rows alone.
func refuseBad(r *record.Record) sinktest.Verdict {
	if strings.HasPrefix(string(r.Value), "bad") && r.Topic != lettersTopic {
		return sinktest.Fail(sink.Rejected, "record_too_large", errors.New("record of topic order-events is too large"))
	}
	return sinktest.Verdict{}
}

func TestDeadLetter_RejectedRowGoesThereAndTheStreamGoesOn(t *testing.T) {
	for _, tt := range []struct{ name, spec, reason, value, topic string }{
		{"refused by the router", "/a/x", "route", "x", ""},
		{"refused by the brokers", "order/a/bad", "record_too_large", "bad", "order-events"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRejecting(newServer(fixed(110, 120, 1, "order/a/1", "order/b/2", tt.spec, "order/b/4", "order/a/5"), fixed(130, 140, 1, "order/a/6")))
				r.sink.Scatter(true)
				r.sink.Decide(refuseBad)
				r.run(t, Config{OnReject: DeadLetterOnReject})
				pass(10 * time.Second)
				if got := r.server.position(); got != 140 {
					t.Fatalf("confirmed %s, want 140", got)
				}
				var a []string
				for _, d := range r.sink.Delivered() {
					if string(d.Key) == "a" && d.Topic == "order-events" {
						a = append(a, string(d.Value))
					}
				}
				if got := strings.Join(a, " "); got != "1 5 6" || len(r.sink.Delivered()) != 6 {
					t.Fatalf("key a: %q of %d records", got, len(r.sink.Delivered()))
				}
				l := r.log.letters(t)[0]
				if l.Reason != tt.reason || string(l.Record.Value) != tt.value || l.Record.Topic != tt.topic || string(l.Record.Key) != "a" ||
					l.Table != "public.outbox" || l.Commit != 110 || l.Ordinal != 3 || l.Source != "7000/16384/orders" || l.EventID() != "0/6E-3" {
					t.Fatalf("letter %+v", l)
				}
				if st := r.relay.Status(); st.EventsRejected != 1 || st.DeadLetters != 1 || st.State != status.Streaming {
					t.Fatalf("status %+v", st)
				}
				r.stop(t)
			})
		})
	}
}

// The position stays before the row until its dead letter is acknowledged.
func TestDeadLetter_IsAcknowledgedBeforeThePositionMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(newServer(fixed(110, 120, 1, "order/a/1", "/a/x"), fixed(130, 140, 1, "order/a/2")))
		r.sink.Hold()
		r.run(t, Config{OnReject: DeadLetterOnReject})
		pass(time.Second)
		r.sink.Ack(1)
		pass(time.Second)
		if got := r.server.position(); got != 100 {
			t.Fatalf("confirmed %s while the dead letter is on its way", got)
		}
		r.sink.Ack(1)
		pass(time.Second)
		if got := r.server.position(); got != 120 {
			t.Fatalf("confirmed %s, want 120", got)
		}
		r.sink.Release()
		r.stop(t)
	})
}

func TestDeadLetter_TopicThatCannotBeWrittenBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(newServer(fixed(110, 120, 1, "order/a/1", "order/a/bad", "order/a/3")))
		var missing atomic.Bool
		missing.Store(true)
		r.sink.Decide(func(rec *record.Record) sinktest.Verdict {
			if rec.Topic == lettersTopic && missing.Load() {
				return sinktest.Fail(sink.Blocked, "unknown_topic", errors.New(`produce to topic "cdc-relay.dead-letters": it does not exist`))
			}
			return refuseBad(rec)
		})
		r.run(t, Config{OnReject: DeadLetterOnReject})
		pass(time.Minute)
		if st := r.relay.Status(); st.State != status.Blocked || st.Reason != "unknown_topic" || !strings.Contains(st.Message, lettersTopic) || !strings.Contains(st.Message, "`cdc-relay setup` creates") {
			t.Fatalf("status %+v", st)
		}
		if got := r.server.position(); got != 100 || r.direct() != "1" {
			t.Fatalf("confirmed %s, delivered %q", got, r.direct())
		}
		missing.Store(false)
		pass(5 * time.Second)
		if got := r.server.position(); got != 120 || r.direct() != "1 3" || r.told(t) != "record_too_large:bad" {
			t.Fatalf("confirmed %s, delivered %q and %q", got, r.direct(), r.told(t))
		}
		r.stop(t)
	})
}

// What is missing in the brokers is never the row's fault.
func TestDeadLetter_BlockedIsNotRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(newServer(fixed(110, 120, 1, "order/a/1")))
		r.sink.Decide(func(*record.Record) sinktest.Verdict {
			return sinktest.Fail(sink.Blocked, "topic_authorization_failed", errors.New("no right"))
		})
		r.run(t, Config{OnReject: DeadLetterOnReject})
		pass(time.Minute)
		if st := r.relay.Status(); st.State != status.Blocked || st.DeadLetters != 0 || st.EventsRejected != 0 || r.server.position() != 100 {
			t.Fatalf("confirmed %s, status %+v", r.server.position(), st)
		}
		r.stop(t)
	})
}

// A table that changed would send every row there; it blocks with every policy.
func TestDeadLetter_SchemaBlocks(t *testing.T) {
	for _, policy := range []OnReject{DeadLetterOnReject, SkipOnReject} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				short := func() *wal.Batch {
					b := batch(110, 120, 1, "order/a/1")
					b.Rows[0].Values = b.Rows[0].Values[:2]
					return b
				}
				r := newRejecting(newServer(short))
				r.run(t, Config{OnReject: policy})
				pass(time.Minute)
				if st := r.relay.Status(); st.State != status.Blocked || st.Reason != fault.ReasonSchema || r.server.position() != 100 {
					t.Fatalf("confirmed %s, status %+v", r.server.position(), st)
				}
				r.stop(t)
			})
		})
	}
}

func TestDeadLetter_GoesOnWithLessWhenItIsTooLargeItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(newServer(fixed(110, 120, 1, "order/a/1", "order/a/bad-and-large", "order/a/3")))
		r.sink.Decide(func(rec *record.Record) sinktest.Verdict {
			if strings.HasPrefix(string(rec.Value), "bad") {
				return sinktest.Fail(sink.Rejected, "record_too_large", errors.New("too large"))
			}
			return sinktest.Verdict{}
		})
		r.run(t, Config{OnReject: DeadLetterOnReject})
		pass(10 * time.Second)
		r.stop(t)
		l := r.log.letters(t)
		if len(l) != 1 || l[0].Record.Value != nil || l[0].ValueBytes != 13 || !slices.Equal(l[0].Missing, []string{"value"}) || l[0].EventID() == "" {
			t.Fatalf("letters %+v", l)
		}
		if r.direct() != "1 3" || r.server.position() != 120 {
			t.Fatalf("delivered %q, confirmed %s", r.direct(), r.server.position())
		}
	})
}

func TestDeadLetter_TopicIsNoTopicOfRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(newServer(fixed(110, 120, 1, "order/a/1", "letters/a/forged", "order/a/3")))
		r.run(t, Config{OnReject: DeadLetterOnReject, DeadLetterTopic: "letters-events"})
		pass(time.Second)
		r.stop(t)
		for _, d := range r.sink.Delivered() {
			if d.Topic != "letters-events" {
				continue
			}
			l, _, err := deadletter.Parse(&topics.Message{Topic: d.Topic, Key: d.Key, Value: d.Value, Headers: d.Headers})
			if err != nil || l.Reason != fault.ReasonRoute {
				t.Fatalf("letter %+v, %v", l, err)
			}
			return
		}
		t.Fatal("no dead letter")
	})
}

func TestSkip_CountsAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(newServer(
			fixed(110, 120, 1, "order/a/1", "/a/x", "order/a/bad", "order/a/4"), fixed(130, 140, 1, "/a/y"), fixed(150, 160, 1, "order/a/bad2"), fixed(170, 180, 1, "order/a/5")))
		r.sink.Decide(refuseBad)
		r.run(t, Config{OnReject: SkipOnReject})
		pass(10 * time.Second)
		st := r.relay.Status()
		if st.State != status.Streaming || st.EventsRejected != 4 || st.EventsPublished != 3 || r.server.position() != 180 {
			t.Fatalf("confirmed %s, status %+v", r.server.position(), st)
		}
		r.stop(t)
		if got := r.direct(); got != "1 4 5" || len(r.log.letters(t)) != 0 {
			t.Fatalf("delivered %q", got)
		}
	})
}
