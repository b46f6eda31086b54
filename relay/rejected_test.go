package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
)

const lettersTopic = "cdc-relay.dead-letters"

// topicLog is the dead-letter topic: what the recorder made durable there, and what
// a test adds, as whoever re-drives does.
type topicLog struct {
	mu    sync.Mutex
	log   []*topics.Message
	taken int                  // of what the processes delivered
	sinks []*sinktest.Recorder // one for each process
}

// delivered is what all processes delivered, one after the other.
func (l *topicLog) delivered() (all []sinktest.Delivered) {
	for _, s := range l.sinks {
		all = append(all, s.Delivered()...)
	}
	return all
}

func (l *topicLog) add(r record.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drain()
	l.put(topics.Message{Key: r.Key, Value: r.Value, Headers: r.Headers})
}

func (l *topicLog) put(m topics.Message) {
	m.Topic, m.Offset = lettersTopic, int64(len(l.log))
	l.log = append(l.log, &m)
}

// drain takes over what the recorder has. The lock is held.
func (l *topicLog) drain() {
	all := l.delivered()
	for _, d := range all[l.taken:] {
		if d.Topic == lettersTopic {
			l.put(topics.Message{Key: d.Key, Value: d.Value, Headers: d.Headers})
		}
	}
	l.taken = len(all)
}

func (l *topicLog) messages() []*topics.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drain()
	return slices.Clone(l.log)
}

func (l *topicLog) letters(t *testing.T) []*deadletter.Letter {
	t.Helper()
	var all []*deadletter.Letter
	for _, m := range l.messages() {
		letter, marker, err := deadletter.Parse(m)
		if err != nil {
			t.Fatal(err)
		}
		if marker == nil {
			all = append(all, letter)
		}
	}
	return all
}

// reader is one relay's view of the log.
type reader struct {
	log   *topicLog
	mu    sync.Mutex
	at    int
	moved chan struct{}
}

func (l *topicLog) reader() *reader { return &reader{log: l, moved: make(chan struct{})} }

func (r *reader) Run(ctx context.Context, visit func(*topics.Message)) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, m := range r.log.messages()[r.at:] {
			visit(m)
			r.mu.Lock()
			r.at++
			close(r.moved)
			r.moved = make(chan struct{})
			r.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reader) CatchUp(ctx context.Context, _ bool) error {
	end := len(r.log.messages())
	for {
		r.mu.Lock()
		at, moved := r.at, r.moved
		r.mu.Unlock()
		if at >= end {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return &sink.Error{Class: sink.Retry, Reason: "network", Err: context.Cause(ctx)}
		}
	}
}

func (r *reader) Close() {}

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
	routes, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Preset: "outbox"}}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.RetryMin, cfg.RetryMax = max(cfg.RetryMin, 10*time.Millisecond), max(cfg.RetryMax, time.Second)
	cfg.Replication.Slot = "orders"
	parts := Parts{Source: r.server.open, Router: routes, Sink: func() (sink.Sink, error) { return r.sink, nil }}
	if cfg.ParkKey {
		parts.Journal = r.log.reader()
	}
	r.relay = New(cfg, parts, Events{}, zerolog.Nop())
	if r.most > 0 {
		few := r.relay.cfg.deliveryConfig()
		few.MaxParked = r.most
		r.relay.delivery = delivery.New(few, routes, parts.Journal, r.relay.monitor, delivery.Events{}, zerolog.Nop())
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
					l.Table != "public.outbox" || l.Commit != 110 || l.Seq != 3 || l.Source != "7000/16384/orders" || l.EventID() != "0/6E-3" {
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

// redrive marks letters of a key as sent: nothing of the key waits at the offsets.
func (r *rejecting) redrive(key string, offsets ...int64) {
	m := deadletter.Marker{
		Source: "7000/16384/orders", Group: deadletter.KeyGroup("order-events", []byte(key)), Outcome: deadletter.Sent,
		Offsets: deadletter.NewOffsets(offsets),
	}
	r.log.add(m.Record(lettersTopic, []byte(key)))
}

func TestParking_LaterRowsFollowUntilReDriven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(newServer(
			fixed(110, 120, 1, "order/a/1", "order/b/2", "order/a/bad", "order/a/4", "order/b/5"), fixed(130, 140, 1, "order/a/6", "other/a/7")))
		r.sink.Decide(refuseBad)
		r.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
		pass(10 * time.Second)
		if got := r.direct(); got != "1 2 5 7" {
			t.Fatalf("delivered %q: key a of order-events is parked, nothing else", got)
		}
		if got := r.told(t); got != "record_too_large:bad parked:4 parked:6" || r.server.position() != 140 {
			t.Fatalf("letters %q, confirmed %s", got, r.server.position())
		}
		if st := r.relay.Status(); st.ParkedKeys != 1 || st.DeadLetters != 3 || st.EventsRejected != 1 {
			t.Fatalf("status %+v", st)
		}

		// A redrive that does not reach the last row leaves the key parked.
		r.redrive("a", 0, 1)
		pass(time.Second)
		r.server.more <- fixed(150, 160, 1, "order/a/8")
		pass(time.Second)
		if got := r.told(t); got != "record_too_large:bad parked:4 parked:6 parked:8" {
			t.Fatalf("letters %q", got)
		}
		// So does one of another slot's rows.
		other := deadletter.Marker{Source: "7000/16384/other", Group: deadletter.KeyGroup("order-events", []byte("a")), Offsets: deadletter.NewOffsets([]int64{0, 1, 2}), Outcome: deadletter.Sent}
		r.log.add(other.Record(lettersTopic, []byte("a")))
		pass(time.Second)
		if st := r.relay.Status(); st.ParkedKeys != 1 {
			t.Fatalf("%d keys parked", st.ParkedKeys)
		}

		// Another process finds the key parked.
		r.stop(t)
		r.again(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
		pass(time.Second)
		r.server.more <- fixed(170, 180, 1, "order/a/9")
		pass(time.Second)
		if got := r.told(t); !strings.HasSuffix(got, " parked:9") || r.direct() != "1 2 5 7" {
			t.Fatalf("letters %q, delivered %q", got, r.direct())
		}

		r.redrive("a", 2, 3, 4, 5, 6)
		pass(time.Second)
		r.server.more <- fixed(190, 200, 1, "order/a/10")
		pass(time.Second)
		if got := r.direct(); got != "1 2 5 7 10" || r.relay.Status().ParkedKeys != 0 {
			t.Fatalf("delivered %q after the key was free", got)
		}
		r.stop(t)
		if r.server.position() != 200 {
			t.Fatalf("confirmed %s", r.server.position())
		}
	})
}

func TestParking_RouterRejectionParksWhereTopicAndKeyAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(newServer(fixed(110, 120, 1, "/a/x", "order/a/2")))
		r.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
		pass(time.Second)
		if got := r.direct(); got != "2" {
			t.Fatalf("delivered %q: without a topic there is no order to keep", got)
		}
		noID := func() *wal.Batch {
			b := batch(130, 140, 1, "order/a/3", "order/a/4")
			b.Rows[0].Values[0] = wal.Value{Kind: wal.Null}
			return b
		}
		r.server.more <- noID
		pass(time.Second)
		if got := r.told(t); got != "route:x mapping:3 parked:4" {
			t.Fatalf("letters %q", got)
		}
		r.stop(t)
	})
}

// The letter of a row that the router refuses is not there before earlier rows of its key
// are: whoever re-drives it would put it ahead of them.
func TestParking_ALetterDoesNotOvertakeEarlierRowsOfItsKey(t *testing.T) {
	for _, apart := range []bool{false, true} {
		t.Run(map[bool]string{false: "one batch", true: "two batches"}[apart], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				noID := func(first int, rows ...string) func() *wal.Batch {
					return func() *wal.Batch {
						b := batch(130, 140, 1, rows...)
						for i := first; i < len(b.Rows); i++ {
							b.Rows[i].Values[0] = wal.Value{Kind: wal.Null}
						}
						return b
					}
				}
				r := newRejecting(newServer(noID(1, "order/a/1", "order/a/2", "order/b/3")))
				if apart {
					r = newRejecting(newServer(fixed(110, 120, 1, "order/a/1"), noID(0, "order/a/2", "order/b/3")))
				}
				r.sink.Hold()
				r.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
				pass(20 * time.Second)
				if got := r.sink.Counts().Waiting; got != 1 {
					t.Errorf("%d records were handed over while an earlier row of the key is not acknowledged", got)
				}
				r.sink.Release()
				pass(20 * time.Second)
				if got := r.direct() + " " + r.told(t); got != "1 mapping:2 mapping:3" {
					t.Errorf("in the end: %q", got)
				}
				r.stop(t)
				if r.server.position() != 140 {
					t.Errorf("confirmed %s", r.server.position())
				}
			})
		})
	}
}

func TestParking_MoreKeysThanFitBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(newServer(fixed(110, 120, 1, "order/a/bad1", "order/b/bad2", "order/c/3")))
		r.sink.Decide(refuseBad)
		r.most = 1
		r.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
		pass(time.Minute)
		if st := r.relay.Status(); st.State != status.Blocked || st.Reason != "parked_keys_full" || !strings.Contains(st.Message, "deadletter list") {
			t.Fatalf("status %+v", st)
		}
		if r.server.position() != 100 || r.told(t) != "record_too_large:bad1" {
			t.Fatalf("confirmed %s, letters %q", r.server.position(), r.told(t))
		}
		r.stop(t)
	})
}

// Whatever is refused, wherever the connection breaks: every row is in its topic or
// among the dead letters, no key has a row in its topic behind a rejected one that is
// still there, and the rest of each key is in order.
func TestParking_KeepsOrderUnderRandomRefusals(t *testing.T) {
	seeds := uint64(25)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomRefusals(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomRefusals(t *testing.T, random *rand.Rand) {
	var batches []func() *wal.Batch
	total, last := 0, wal.LSN(0)
	for n := range 12 {
		var rows []string
		for range 1 + random.IntN(6) {
			key, value := string(rune('a'+random.IntN(4))), fmt.Sprintf("%04d", total)
			switch random.IntN(8) {
			case 0:
				value = "bad" + value
			case 1:
				rows = append(rows, "/"+key+"/"+value) // no topic
				total++
				continue
			}
			rows = append(rows, "order/"+key+"/"+value)
			total++
		}
		commit := wal.LSN(110 + 20*n)
		last = commit + 10
		batches = append(batches, fixed(commit, last, 1, rows...))
	}
	r := newRejecting(newServer(batches...))
	r.sink.Scatter(random.IntN(2) == 0)
	r.sink.Decide(refuseBad)
	r.sink.Delay(time.Duration(1+random.IntN(50)) * time.Millisecond)
	r.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
	for range random.IntN(3) {
		pass(time.Duration(20+random.IntN(400)) * time.Millisecond)
		r.server.cut()
	}
	pass(time.Minute)
	r.stop(t)
	if r.server.position() != last {
		t.Fatalf("confirmed %s, want %s", r.server.position(), last)
	}
	seen, parked, newest := map[string]bool{}, map[string]bool{}, map[string]string{}
	for _, d := range r.sink.Delivered() {
		value, key := string(d.Value), string(d.Key)
		fresh := !seen[value]
		seen[value] = true
		switch {
		case d.Topic == lettersTopic:
			l, _, err := deadletter.Parse(&topics.Message{Key: d.Key, Value: d.Value, Headers: d.Headers})
			if err != nil {
				t.Fatal(err)
			}
			parked[key] = parked[key] || l.Keyed
		case parked[key] && fresh:
			t.Fatalf("%s of key %s was delivered although an earlier row of the key is a dead letter", value, key)
		case fresh && strings.TrimPrefix(value, "bad") < newest[key]:
			t.Fatalf("%s of key %s came after %s", value, key, newest[key])
		case fresh:
			newest[key] = strings.TrimPrefix(value, "bad") // one that the brokers happened to take after all
		}
	}
	if len(seen) != total {
		t.Fatalf("%d of %d rows are somewhere", len(seen), total)
	}
}
