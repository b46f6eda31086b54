package tracing

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// schemaURL pins the semantic conventions: those of messaging are not stable.
const schemaURL = "https://opentelemetry.io/schemas/1.44.0"

// scopeName names who made the spans.
const scopeName = "github.com/cdc-relay/cdc-relay/tracing"

// Resource says which relay the spans are of.
type Resource struct {
	Version  string
	Pipeline string
	Slot     string
}

// Flags of spans and links in OTLP: the context's in the lowest byte, and whether the parent
// is of another process.
const (
	flagHasRemote = 0x100
	flagIsRemote  = 0x200
)

// Encode writes a request of OTLP with the spans of traced rows.
func Encode(of Resource, rows []*Span) ([]byte, error) {
	spans := make([]*otlp.Span, 0, PerRow*len(rows))
	for _, s := range rows {
		outer, send := s.messages()
		spans = append(spans, outer, send)
	}
	request := &collector.ExportTraceServiceRequest{ResourceSpans: []*otlp.ResourceSpans{{
		Resource: &resource.Resource{Attributes: attributes{}.
			text("service.name", "cdc-relay").text("service.version", of.Version).
			text("cdc_relay.pipeline", of.Pipeline).text("cdc_relay.slot", of.Slot)},
		ScopeSpans: []*otlp.ScopeSpans{{Scope: &common.InstrumentationScope{Name: scopeName, Version: of.Version}, Spans: spans, SchemaUrl: schemaURL}},
		SchemaUrl:  schemaURL,
	}}}
	text, err := proto.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode spans: %w", err)
	}
	return text, nil
}

// Rejections reads the answer of a collector: how many spans it did not take, and why.
func Rejections(answer []byte) (spans int64, why string, err error) {
	var response collector.ExportTraceServiceResponse
	if err := proto.Unmarshal(answer, &response); err != nil {
		return 0, "", fmt.Errorf("decode the answer: %w", err)
	}
	partial := response.GetPartialSuccess()
	return partial.GetRejectedSpans(), partial.GetErrorMessage(), nil
}

// messages are the two spans of a row.
func (s *Span) messages() (outer, send *otlp.Span) {
	began, handed, skewed := s.times()
	end := s.end
	if end.Before(handed) {
		end = handed // the clock was set back
	}
	outer = &otlp.Span{
		TraceId: s.trace[:], SpanId: s.outer[:], Kind: otlp.Span_SPAN_KIND_INTERNAL, Name: valid("outbox " + s.Table),
		StartTimeUnixNano: nanos(began), EndTimeUnixNano: nanos(end),
		Flags: uint32(s.flags) | flagHasRemote, Status: s.status(),
	}
	if s.from != (Context{}) && s.KeepsTrace() {
		outer.ParentSpanId, outer.TraceState = s.from.Span[:], s.tracestate()
		outer.Flags |= flagIsRemote
	} else if s.from != (Context{}) {
		outer.Links = []*otlp.Span_Link{{
			TraceId: s.from.Trace[:], SpanId: s.from.Span[:], TraceState: s.tracestate(),
			Flags: uint32(s.from.Flags&knownFlags) | flagHasRemote | flagIsRemote,
		}}
	}
	outer.Attributes = s.outerAttributes(skewed)
	outer.Events, outer.DroppedEventsCount = s.eventMessages(), uint32(s.dropped)
	send = &otlp.Span{
		TraceId: s.trace[:], SpanId: s.send[:], ParentSpanId: s.outer[:], TraceState: outer.TraceState,
		Kind: otlp.Span_SPAN_KIND_PRODUCER, Name: valid(strings.TrimSuffix("send "+s.Topic, " ")),
		StartTimeUnixNano: nanos(handed), EndTimeUnixNano: nanos(end),
		Flags: uint32(s.flags) | flagHasRemote, Status: s.status(), Attributes: s.sendAttributes(),
	}
	return outer, send
}

// maxState is the longest tracestate that everybody passes on.
const maxState = 512

func (s *Span) tracestate() string {
	if len(s.state) > maxState || !utf8.ValidString(s.state) {
		return ""
	}
	return s.state
}

func (s *Span) status() *otlp.Status {
	if s.aside == "" {
		return nil
	}
	return &otlp.Status{Code: otlp.Status_STATUS_CODE_ERROR, Message: valid(s.aside)}
}

func (s *Span) outerAttributes(skewed bool) attributes {
	a := make(attributes, 0, 8).text("db.system.name", "postgresql").text("db.namespace", s.tracer.cfg.Database).text("db.collection.name", s.Table).
		text("cdc_relay.lsn", s.LSN).number("cdc_relay.seq", int64(s.Seq)).number("cdc_relay.attempts", int64(s.attempts)).text("error.type", s.aside)
	if skewed {
		a = a.flag("cdc_relay.clock_skew")
	}
	return a
}

func (s *Span) sendAttributes() attributes {
	a := make(attributes, 0, 8).text("messaging.system", "kafka").text("messaging.operation.name", "send").text("messaging.operation.type", "send").
		text("messaging.destination.name", s.Topic).text("messaging.message.id", s.EventID).number("messaging.message.body.size", int64(s.Size)).
		text("error.type", s.aside)
	if s.Tombstone {
		a = a.flag("messaging.kafka.message.tombstone")
	}
	return a
}

func (s *Span) eventMessages() []*otlp.Span_Event {
	events := []*otlp.Span_Event{{Name: received, TimeUnixNano: nanos(s.received)}}
	for _, e := range s.events {
		events = append(events, &otlp.Span_Event{Name: e.name, TimeUnixNano: nanos(e.at), Attributes: attributes{}.text("error.type", e.reason)})
	}
	return events
}

func nanos(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) }

// attributes are a list in the making.
type attributes []*common.KeyValue

// text adds a text that is not empty. OTLP has UTF-8 alone, and refuses a request for one text that
// is not.
func (a attributes) text(key, value string) attributes {
	if value == "" {
		return a
	}
	of := new(struct { // one allocation
		entry common.KeyValue
		value common.AnyValue
		text  common.AnyValue_StringValue
	})
	of.entry.Key, of.entry.Value = key, &of.value
	of.value.Value = &of.text
	of.text.StringValue = valid(value)
	return append(a, &of.entry)
}

// valid replaces what is not UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func (a attributes) number(key string, value int64) attributes {
	return append(a, &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: value}}})
}

func (a attributes) flag(key string) attributes {
	return append(a, &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: true}}})
}
