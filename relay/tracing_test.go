package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/tracing"
	"github.com/rs/zerolog"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	ownTrace  = "0af7651916cd43dd8448eb211c80319c"
	ownParent = "00-" + ownTrace + "-b7ad6b7169203331-01"
)

// spans is where the spans of a test end.
type spans struct {
	mu    sync.Mutex
	ended []*tracing.Span
}

func (s *spans) Add(span *tracing.Span) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, span)
	return true
}

// messages are the ended spans, two for each row.
func (s *spans) messages(t *testing.T) []*otlp.Span {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) == 0 {
		return nil
	}
	text, err := tracing.Encode(tracing.Resource{}, s.ended)
	if err != nil {
		t.Fatal(err)
	}
	var request collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(text, &request); err != nil {
		t.Fatal(err)
	}
	return request.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()
}

func attribute(s *otlp.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			if n := a.GetValue().GetIntValue(); n != 0 {
				return fmt.Sprint(n)
			}
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

func eventsOf(s *otlp.Span) string {
	var names []string
	for _, e := range s.GetEvents() {
		name := e.GetName()
		for _, a := range e.GetAttributes() {
			name += ":" + a.GetValue().GetStringValue()
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

var tracedOutbox = &wal.Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: append(slices.Clone(outbox.Columns), wal.Column{Name: "traceparent", Type: 25})}

// traced are the batches of fixed, whose rows have a trace context.
func traced(parent string, of func() *wal.Batch) func() *wal.Batch {
	return func() *wal.Batch {
		b := of()
		for i := range b.Rows {
			b.Rows[i].Relation = tracedOutbox
			b.Rows[i].Values = append(b.Rows[i].Values, wal.Value{Kind: wal.Text, Data: []byte(parent)})
		}
		return b
	}
}

// tracedSource has a table with trace contexts.
type tracedSource struct{ *fakeSource }

func (tracedSource) Tables() []*wal.Relation { return []*wal.Relation{tracedOutbox} }

func tracedServer(batches ...func() *wal.Batch) *fakeServer {
	s := newServer(batches...)
	s.wrap = func(f *fakeSource) Source { return tracedSource{f} }
	return s
}

func tracedRoutes(t *testing.T, to *spans) *router.Router {
	t.Helper()
	routes, err := router.New(router.Config{
		Mappings: []router.Mapping{{Table: "public.outbox", Preset: "outbox"}}, Tracer: tracing.New(tracing.Config{MaxPerSecond: 1000}, to),
	})
	if err != nil {
		t.Fatal(err)
	}
	return routes
}

func startTraced(t *testing.T, cfg Config, server *fakeServer, to *spans, brokers *sinktest.Recorder) *bench {
	t.Helper()
	b := &bench{server: server, sink: brokers, result: make(chan error, 1)}
	cfg.RetryMax = time.Second
	b.relay = New(cfg, Parts{Source: server.open, Router: tracedRoutes(t, to), Sink: func() (sink.Sink, error) { return brokers, nil }}, Events{}, zerolog.Nop())
	ctx, cancel := context.WithCancel(t.Context())
	b.cancel = cancel
	go func() { b.result <- b.relay.Run(ctx) }()
	return b
}

// parentOf is the span that a record names.
func parentOf(t *testing.T, headers []record.Header) tracing.Context {
	t.Helper()
	for _, h := range headers {
		if h.Key == "traceparent" {
			c, ok := tracing.ParseParent(h.Value)
			if !ok {
				t.Errorf("traceparent %q", h.Value)
			}
			return c
		}
	}
	t.Error("no traceparent")
	return tracing.Context{}
}

// A row's spans end when its record is durable, and the record names the one of sending.
func TestTracing_SpansEndWithTheAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, brokers := new(spans), new(sinktest.Recorder)
		brokers.Hold()
		b := startTraced(t, Config{}, tracedServer(traced(ownParent, fixed(110, 120, 1, "order/a/1", "order/b/22"))), to, brokers)
		pass(3 * time.Second)
		if n := len(to.messages(t)); n != 0 {
			t.Errorf("%d spans of records that are not durable", n)
		}
		brokers.Release()
		pass(time.Second)
		b.stop(t)
		all := to.messages(t)
		if len(all) != 4 {
			t.Fatalf("%d spans", len(all))
		}
		for i, d := range brokers.Delivered() {
			outer, send, names := all[2*i], all[2*i+1], parentOf(t, d.Headers)
			if fmt.Sprintf("%x", names.Trace) != ownTrace || string(names.Span[:]) != string(send.GetSpanId()) || string(send.GetParentSpanId()) != string(outer.GetSpanId()) || fmt.Sprintf("%x", outer.GetParentSpanId()) != "b7ad6b7169203331" {
				t.Errorf("record %d names %+v; spans %v, %v", i, names, outer, send)
			}
			if attribute(send, "messaging.message.body.size") != fmt.Sprint(len(d.Value)) || attribute(outer, "cdc_relay.attempts") != "1" || attribute(outer, "cdc_relay.seq") != fmt.Sprint(i+1) || outer.GetStatus() != nil {
				t.Errorf("%v, %v", outer, send)
			}
			if took := send.GetEndTimeUnixNano() - send.GetStartTimeUnixNano(); took != uint64(3*time.Second) {
				t.Errorf("sending took %v", time.Duration(took))
			}
		}
	})
}

// A row that is set aside has an error, whoever refused it.
func TestTracing_RowsThatAreSetAsideHaveAnError(t *testing.T) {
	for name, c := range map[string]struct {
		row, reason string
		policy      OnReject
		letter      bool
	}{
		"letter of the router":  {"/a/1", "route", DeadLetterOnReject, true},
		"letter of the brokers": {"order/a/bad", "record_too_large", DeadLetterOnReject, true},
		"skipped by the router": {"/a/1", "route", SkipOnReject, false},
		"skipped for brokers":   {"order/a/bad", "record_too_large", SkipOnReject, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to, brokers := new(spans), new(sinktest.Recorder)
				brokers.Decide(func(r *record.Record) sinktest.Verdict {
					if r.Topic != lettersTopic && string(r.Value) == "bad" {
						return sinktest.Fail(sink.Rejected, "record_too_large", errors.New("too large"))
					}
					return sinktest.Verdict{}
				})
				b := startTraced(t, Config{OnReject: c.policy, DeadLetterTopic: lettersTopic}, tracedServer(traced(ownParent, fixed(110, 120, 1, "order/a/0", c.row, "order/b/2"))), to, brokers)
				pass(5 * time.Second)
				b.stop(t)
				all := to.messages(t)
				if len(all) != 6 {
					t.Fatalf("%d spans", len(all))
				}
				failed := 0
				for _, s := range all {
					if s.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR {
						continue
					}
					failed++
					if attribute(s, "error.type") != c.reason {
						t.Errorf("%v", s)
					}
					if s.GetKind() == otlp.Span_SPAN_KIND_INTERNAL && strings.Contains(eventsOf(s), "dead_lettered:"+c.reason) != c.letter {
						t.Errorf("events %s", eventsOf(s))
					}
				}
				if failed != 2 {
					t.Errorf("%d spans have an error", failed)
				}
				for _, d := range brokers.Delivered() {
					if d.Topic == lettersTopic {
						parentOf(t, d.Headers)
					}
				}
			})
		})
	}
}

// With exactly-once the next session sets the row aside, in the transaction's second attempt.
func TestTracing_RowsThatAreSetAsideInAKafkaTransactionHaveAnError(t *testing.T) {
	for policy, letter := range map[OnReject]bool{DeadLetterOnReject: true, SkipOnReject: false} {
		synctest.Test(t, func(t *testing.T) {
			to := new(spans)
			server := tracedServer(traced(ownParent, fixed(110, 120, 1, "order/a/1", "order/b/bad")))
			server.origin = wal.Origin{SystemID: "7000", Timeline: 1}
			l := &ledger{sim: calmSim(), refuses: func(r *record.Record) bool { return string(r.Value) == "bad" && r.Topic != lettersTopic }}
			cfg := Config{Guarantee: ExactlyOnce, OnReject: policy, DeadLetterTopic: lettersTopic}
			cfg.Replication.Slot, cfg.Replication.Publication = "orders", "orders"
			relay := New(cfg, Parts{Source: server.open, Router: tracedRoutes(t, to), Sink: func() (sink.Sink, error) { return &transactional{l: l}, nil }}, Events{}, zerolog.Nop())
			runFor(t, relay, 10*time.Second)
			failed := 0
			for _, s := range to.messages(t) {
				if s.GetStatus() != nil {
					failed++
				}
				if s.GetStatus() != nil && s.GetKind() == otlp.Span_SPAN_KIND_INTERNAL && (attribute(s, "error.type") != "record_too_large" || strings.Contains(eventsOf(s), "dead_lettered:record_too_large") != letter) {
					t.Errorf("%s: %s, events %s", policy, attribute(s, "error.type"), eventsOf(s))
				}
			}
			if n := len(to.messages(t)); n != 4 || failed != 2 {
				t.Errorf("%s: %d spans, %d with an error; committed %q", policy, n, failed, l.committed)
			}
		})
	}
}

// Attempts of one session are one span, with an event for each that failed.
func TestTracing_AttemptsAreEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, brokers, tries := new(spans), new(sinktest.Recorder), 0
		brokers.Decide(func(r *record.Record) sinktest.Verdict {
			if string(r.Value) != "1" {
				return sinktest.Verdict{}
			}
			switch tries++; tries {
			case 1, 2:
				return sinktest.Fail(sink.Retry, "not_leader", errors.New("not leader"))
			case 3:
				return sinktest.Fail(sink.Blocked, "topic_authorization_failed", errors.New("no right"))
			}
			return sinktest.Verdict{}
		})
		b := startTraced(t, Config{}, tracedServer(traced(ownParent, fixed(110, 120, 1, "order/a/1"))), to, brokers)
		pass(20 * time.Second)
		b.stop(t)
		all := to.messages(t)
		if len(all) != 2 {
			t.Fatalf("%d spans", len(all))
		}
		if got := eventsOf(all[0]); got != "received retry:not_leader blocked:topic_authorization_failed" || attribute(all[0], "cdc_relay.attempts") != "4" || all[0].GetStatus() != nil {
			t.Errorf("%s; attempts %s, %v", got, attribute(all[0], "cdc_relay.attempts"), all[0].GetStatus())
		}
	})
}

// A row whose session ended before the answer may be with the brokers: its span is sent with an
// error, and the next attempt has spans of its own in the same trace.
func TestTracing_ARedeliveredRowHasTwoSpansOfSendingInOneTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, silent, brokers := new(spans), new(sinktest.Recorder), new(sinktest.Recorder)
		silent.Hold()
		silent.Written(true)
		server, sinks := tracedServer(traced(ownParent, fixed(110, 120, 1, "order/a/1"))), []sink.Sink{silent, brokers}
		relay := New(Config{}, Parts{Source: server.open, Router: tracedRoutes(t, to), Sink: func() (sink.Sink, error) {
			next := sinks[0]
			sinks = sinks[1:]
			return next, nil
		}}, Events{}, zerolog.Nop())
		go func() {
			pass(time.Second)
			server.cut()
		}()
		runFor(t, relay, 11*time.Second)
		all := to.messages(t)
		if len(all) != 4 {
			t.Fatalf("%d spans", len(all))
		}
		for i, s := range all {
			if fmt.Sprintf("%x", s.GetTraceId()) != ownTrace || (s.GetStatus() != nil) != (i < 2) || i < 2 && attribute(s, "error.type") != "session_ended" {
				t.Errorf("span %d: %v", i, s)
			}
		}
		if string(all[1].GetSpanId()) == string(all[3].GetSpanId()) {
			t.Error("two records name one span")
		}
		if last := parentOf(t, brokers.Delivered()[0].Headers); string(last.Span[:]) != string(all[3].GetSpanId()) {
			t.Errorf("the record names %+v", last)
		}
	})
}

// With exactly-once nobody sees an aborted attempt: it is an event of the span that ends with the
// commit.
func TestTracing_AnAbortedKafkaTransactionIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, refusals := new(spans), 0
		server := tracedServer(traced(ownParent, fixed(110, 120, 1, "order/a/1", "order/b/2")))
		server.origin = wal.Origin{SystemID: "7000", Timeline: 1}
		l := &ledger{sim: calmSim()}
		l.refuses = func(*record.Record) bool {
			if len(to.messages(t)) > 0 {
				t.Error("a span ended before the commit")
			}
			refusals++
			return refusals == 1 // and alone it is taken
		}
		cfg := Config{Guarantee: ExactlyOnce}
		cfg.Replication.Slot, cfg.Replication.Publication = "orders", "orders"
		relay := New(cfg, Parts{Source: server.open, Router: tracedRoutes(t, to), Sink: func() (sink.Sink, error) { return &transactional{l: l}, nil }}, Events{}, zerolog.Nop())
		runFor(t, relay, 10*time.Second)
		all := to.messages(t)
		if len(all) != 4 || len(l.committed) != 2 {
			t.Fatalf("%d spans, committed %q", len(all), l.committed)
		}
		for _, s := range all {
			if s.GetStatus() != nil {
				t.Errorf("%v", s)
			}
		}
		if got := eventsOf(all[0]); got != "received retry:record_too_large" || attribute(all[0], "cdc_relay.attempts") != "2" {
			t.Errorf("%s; attempts %s", got, attribute(all[0], "cdc_relay.attempts"))
		}
	})
}

// A transaction whose outcome nobody told was committed: the next session learns of it, and ends its
// spans, as consumers have the records.
func TestTracing_ATransactionThatTurnsOutToBeCommittedHasItsSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := new(spans)
		server := tracedServer(traced(ownParent, fixed(110, 120, 1, "order/a/1")))
		server.origin = wal.Origin{SystemID: "7000", Timeline: 1}
		l := &ledger{sim: calmSim()}
		cfg := Config{Guarantee: ExactlyOnce}
		cfg.Replication.Slot, cfg.Replication.Publication = "orders", "orders"
		relay := New(cfg, Parts{Source: server.open, Router: tracedRoutes(t, to), Sink: func() (sink.Sink, error) { return &silentCommit{transactional: &transactional{l: l}}, nil }}, Events{}, zerolog.Nop())
		runFor(t, relay, 10*time.Second)
		all := to.messages(t)
		if len(all) != 2 || len(l.committed) != 1 || all[0].GetStatus() != nil {
			t.Fatalf("%d spans, committed %q: %v", len(all), l.committed, all)
		}
	})
}

// silentCommit commits its first records and reports a failure.
type silentCommit struct {
	*transactional
	done bool
}

func (s *silentCommit) Send(ctx context.Context, records []record.Record, done func(error)) {
	if s.done {
		s.transactional.Send(ctx, records, done)
		return
	}
	s.done = true
	s.transactional.Send(ctx, records, func(error) {
		done(failedAs(records, sink.Failure{Class: sink.Retry, Reason: "commit_unknown", Err: errors.New("connection lost")}))
		s.abandon(errors.New("connection lost"), nil)
	})
}
