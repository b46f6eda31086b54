package tracing

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

var (
	commit = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	shop   = Resource{Version: "1.2.3", Pipeline: "orders", Slot: "cdc_relay"}
)

func picked(t testing.TB, cfg Config, parent string) *Span {
	t.Helper()
	cfg.Database = "shop"
	tr, _, now := tracer(cfg)
	*now = commit.Add(time.Second)
	s := tr.Picker().Pick([]byte(parent))
	if s == nil {
		t.Fatal("the row is not traced")
	}
	s.Row = Row{Table: "public.outbox", Topic: "order-events", EventID: "e-1", LSN: "0/16B3748", Seq: 3, Commit: commit, Size: 120}
	return s
}

// sent are the two spans as a collector reads them.
func sent(t testing.TB, spans ...*Span) (*collector.ExportTraceServiceRequest, []*otlp.Span) {
	t.Helper()
	text, err := Encode(shop, spans)
	if err != nil {
		t.Fatal(err)
	}
	request := new(collector.ExportTraceServiceRequest)
	if err := proto.Unmarshal(text, request); err != nil {
		t.Fatal(err)
	}
	return request, request.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()
}

func shown(all []*common.KeyValue) string {
	var b strings.Builder
	for _, a := range all {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			fmt.Fprintf(&b, "%s=%s ", a.GetKey(), v.StringValue)
		case *common.AnyValue_IntValue:
			fmt.Fprintf(&b, "%s=%d ", a.GetKey(), v.IntValue)
		case *common.AnyValue_BoolValue:
			fmt.Fprintf(&b, "%s=%t ", a.GetKey(), v.BoolValue)
		}
	}
	return strings.TrimSpace(b.String())
}

func TestEncode_WritesTheTwoSpansOfARow(t *testing.T) {
	s := picked(t, Config{}, goodParent)
	s.State("vendor=1")
	s.HandedOver(commit.Add(2 * time.Second))
	s.End(commit.Add(3 * time.Second))
	request, spans := sent(t, s)
	of := request.GetResourceSpans()[0]
	if got := shown(of.GetResource().GetAttributes()); got != "service.name=cdc-relay service.version=1.2.3 cdc_relay.pipeline=orders cdc_relay.slot=cdc_relay" || of.GetSchemaUrl() != schemaURL {
		t.Errorf("resource %s, %s", got, of.GetSchemaUrl())
	}
	outer, send := spans[0], spans[1]
	from, _ := ParseParent(goodParent)
	record := s.Context()
	if outer.GetName() != "outbox public.outbox" || outer.GetKind() != otlp.Span_SPAN_KIND_INTERNAL || !bytes.Equal(outer.GetTraceId(), from.Trace[:]) || !bytes.Equal(outer.GetParentSpanId(), from.Span[:]) || outer.GetTraceState() != "vendor=1" || outer.GetFlags() != 0x301 {
		t.Errorf("outer span %v", outer)
	}
	if send.GetName() != "send order-events" || send.GetKind() != otlp.Span_SPAN_KIND_PRODUCER || !bytes.Equal(send.GetParentSpanId(), outer.GetSpanId()) || !bytes.Equal(send.GetSpanId(), record.Span[:]) || !bytes.Equal(send.GetTraceId(), record.Trace[:]) || send.GetFlags() != 0x101 {
		t.Errorf("span of sending %v", send)
	}
	at := func(seconds int) uint64 { return uint64(commit.Add(time.Duration(seconds) * time.Second).UnixNano()) }
	if outer.GetStartTimeUnixNano() != at(0) || send.GetStartTimeUnixNano() != at(2) || outer.GetEndTimeUnixNano() != at(3) || send.GetEndTimeUnixNano() != at(3) {
		t.Errorf("times %v %v", outer, send)
	}
	if got := shown(outer.GetAttributes()); got != "db.system.name=postgresql db.namespace=shop db.collection.name=public.outbox cdc_relay.lsn=0/16B3748 cdc_relay.seq=3 cdc_relay.attempts=1" {
		t.Errorf("outer span: %s", got)
	}
	if got := shown(send.GetAttributes()); got != "messaging.system=kafka messaging.operation.name=send messaging.operation.type=send messaging.destination.name=order-events messaging.message.id=e-1 messaging.message.body.size=120" {
		t.Errorf("span of sending: %s", got)
	}
	if e := outer.GetEvents(); len(e) != 1 || e[0].GetName() != "received" || e[0].GetTimeUnixNano() != at(1) || outer.GetStatus() != nil {
		t.Errorf("events %v, status %v", e, outer.GetStatus())
	}
}

// The trace of a link is the relay's own; the row's is named in the link alone.
func TestEncode_LinksToTheRowsTrace(t *testing.T) {
	s := picked(t, Config{Mode: Link}, goodParent)
	s.State("vendor=1")
	s.End(commit.Add(2 * time.Second))
	_, spans := sent(t, s)
	from, _ := ParseParent(goodParent)
	outer := spans[0]
	if len(outer.GetParentSpanId()) != 0 || bytes.Equal(outer.GetTraceId(), from.Trace[:]) || outer.GetTraceState() != "" || len(outer.GetLinks()) != 1 {
		t.Fatalf("%v", outer)
	}
	if l := outer.GetLinks()[0]; !bytes.Equal(l.GetTraceId(), from.Trace[:]) || !bytes.Equal(l.GetSpanId(), from.Span[:]) || l.GetTraceState() != "vendor=1" || l.GetFlags() != 0x301 {
		t.Errorf("link %v", l)
	}
	if !bytes.Equal(spans[1].GetTraceId(), outer.GetTraceId()) || !bytes.Equal(spans[1].GetParentSpanId(), outer.GetSpanId()) {
		t.Errorf("%v is not below it", spans[1])
	}
}

// The database's clock may be ahead: then the row was not committed after it was sent.
func TestEncode_MovesABeginningThatLiesBehindTheHandOver(t *testing.T) {
	s := picked(t, Config{}, goodParent)
	s.HandedOver(commit.Add(-time.Second))
	s.End(commit.Add(-time.Second / 2))
	_, spans := sent(t, s)
	if outer := spans[0]; outer.GetStartTimeUnixNano() != spans[1].GetStartTimeUnixNano() || !strings.Contains(shown(outer.GetAttributes()), "cdc_relay.clock_skew=true") {
		t.Errorf("%v", outer)
	}
	s = picked(t, Config{}, goodParent)
	s.Commit = time.Time{} // a message outside any transaction
	s.HandedOver(commit.Add(2 * time.Second))
	s.End(commit.Add(time.Second)) // the clock was set back
	_, spans = sent(t, s)
	if outer := spans[0]; outer.GetStartTimeUnixNano() != uint64(commit.Add(time.Second).UnixNano()) || outer.GetEndTimeUnixNano() < spans[1].GetStartTimeUnixNano() || strings.Contains(shown(outer.GetAttributes()), "skew") {
		t.Errorf("%v", outer)
	}
}

func TestEncode_ShowsAttemptsEventsAndRowsThatAreSetAside(t *testing.T) {
	first := picked(t, Config{}, goodParent)
	first.HandedOver(commit.Add(time.Second))
	first.Event(Retry, "not_leader", commit.Add(2*time.Second))
	s := picked(t, Config{}, goodParent)
	s.Tombstone = true
	s.Follows(first)
	s.HandedOver(commit.Add(3 * time.Second))
	for range maxEvents + 1 {
		s.Event(Blocked, "topic_authorization_failed", commit.Add(4*time.Second))
	}
	s.EndAside("record_too_large", true, commit.Add(5*time.Second))
	_, spans := sent(t, s)
	outer := spans[0]
	var names []string
	for _, e := range outer.GetEvents() {
		names = append(names, e.GetName()+" "+shown(e.GetAttributes()))
	}
	if names[0] != "received " || names[1] != "retry error.type=not_leader" || names[2] != "blocked error.type=topic_authorization_failed" || names[len(names)-1] != "dead_lettered error.type=record_too_large" || outer.GetDroppedEventsCount() != 2 {
		t.Errorf("%d dropped of %q", outer.GetDroppedEventsCount(), names)
	}
	for _, span := range spans {
		if span.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR || !strings.Contains(shown(span.GetAttributes()), "error.type=record_too_large") {
			t.Errorf("%v", span)
		}
	}
	if got := shown(outer.GetAttributes()); !strings.Contains(got, "cdc_relay.attempts=2") || !strings.Contains(shown(spans[1].GetAttributes()), "messaging.kafka.message.tombstone=true") {
		t.Errorf("%s; %v", got, spans[1])
	}
}

// Whatever a row holds, a collector can read the request, and one row spoils no other.
func FuzzEncode(f *testing.F) {
	f.Add("public.outbox", "topic", "id", "a=b", int64(1), uint64(7), "reason")
	f.Add("\xff", "\x80", "\xc3\x28", "\xff", int64(-1<<62), uint64(1<<63), "\xfe")
	f.Fuzz(func(t *testing.T, table, topic, id, state string, at int64, seq uint64, reason string) {
		s, other := picked(t, Config{}, goodParent), picked(t, Config{}, goodParent)
		s.Row = Row{Table: table, Topic: topic, EventID: id, Seq: seq, Commit: time.Unix(0, at)}
		s.State(state)
		s.HandedOver(time.Unix(0, at))
		s.Event(Blocked, reason, time.Unix(0, at))
		s.EndAside(reason, true, time.Unix(0, at))
		other.End(commit)
		_, spans := sent(t, s, other)
		if len(spans) != 2*PerRow || spans[2].GetName() != "outbox public.outbox" {
			t.Fatalf("%v", spans)
		}
		for _, span := range spans {
			if !utf8.ValidString(span.GetName()) || len(span.GetTraceId()) != 16 || len(span.GetSpanId()) != 8 || span.GetEndTimeUnixNano() < span.GetStartTimeUnixNano() {
				t.Fatalf("%v", span)
			}
		}
	})
}

// The answer is read as the official messages write it, and anything else does no harm.
func FuzzRejections(f *testing.F) {
	full, _ := proto.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 3, ErrorMessage: "too old"}})
	f.Add(full, int64(3), "too old")
	f.Add([]byte{0xff}, int64(-1), "")
	f.Fuzz(func(t *testing.T, answer []byte, spans int64, why string) {
		_, _, _ = Rejections(answer)
		if !utf8.ValidString(why) {
			return
		}
		text, err := proto.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: spans, ErrorMessage: why}})
		if err != nil {
			t.Fatal(err)
		}
		if n, got, err := Rejections(text); n != spans || got != why || err != nil {
			t.Fatalf("%d %q %v", n, got, err)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	spans := make([]*Span, 256)
	for i := range spans {
		spans[i] = picked(b, Config{}, goodParent)
		spans[i].HandedOver(commit)
		spans[i].End(commit.Add(time.Second))
	}
	for b.Loop() {
		if _, err := Encode(shop, spans); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(spans)*PerRow), "ns/span")
}
