package record

import (
	"bytes"
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/tracing"
)

// The W3C trace context's headers.
const (
	TraceParent = "traceparent"
	TraceState  = "tracestate"
)

// pick has a record traced if the picker wants it. With own, the header traceparent then names the
// span of sending; else the headers stay as they are.
func pick(b *Buffer, rec *Record, picker *tracing.Picker, own bool) {
	var parent []byte
	if at := lastHeader(rec.Headers, TraceParent); at >= 0 {
		parent = rec.Headers[at].Value
	}
	if len(parent) == 0 && !own {
		parent = columnParent(rec.Row)
	}
	if len(b.Spans) == maxSpans {
		return
	}
	span := picker.Pick(parent)
	if span == nil {
		return
	}
	b.Spans = append(b.Spans, span)
	rec.Span = uint16(len(b.Spans))
	b.used += tracing.Bytes
	span.Row = spanRow(rec)
	if at := lastHeader(rec.Headers, TraceState); at >= 0 {
		span.State(string(rec.Headers[at].Value))
	}
	if own {
		setParent(b, rec, span)
	}
}

// maxSpans is what Record.Span can number.
const maxSpans = 1<<16 - 1

// spanContext is the column in which rows for Debezium have their trace context, as text of
// java.util.Properties. Debezium does not send it.
const spanContext = "tracingspancontext"

// columnParent is the traceparent in that column, if the row has one.
func columnParent(row *wal.Row) []byte {
	i := slices.IndexFunc(row.Relation.Columns, func(c wal.Column) bool { return c.Name == spanContext })
	if i < 0 || i >= len(row.Values) {
		return nil
	}
	for line := range bytes.Lines(row.Values[i].Data) {
		name, value, found := bytes.Cut(bytes.TrimSpace(line), []byte("="))
		if found && string(bytes.TrimSpace(name)) == TraceParent {
			return bytes.TrimSpace(value)
		}
	}
	return nil
}

func lastHeader(headers []Header, name string) int {
	for i := len(headers) - 1; i >= 0; i-- {
		if headers[i].Key == name {
			return i
		}
	}
	return -1
}

// setParent has every traceparent of a record name the span, and gives the record one that has
// none. A tracestate belongs to the row's trace: it does not go into another one.
func setParent(b *Buffer, rec *Record, span *tracing.Span) {
	text := b.Claim(tracing.AppendParent(b.Tail(64), span.Context()))
	found := false
	for i := range rec.Headers {
		if rec.Headers[i].Key == TraceParent {
			rec.Headers[i].Value, found = text, true
		}
	}
	if !span.KeepsTrace() {
		rec.Headers = slices.DeleteFunc(rec.Headers, func(h Header) bool { return h.Key == TraceState })
	}
	if found {
		return
	}
	for _, h := range rec.Headers {
		b.Header(h.Key, h.Value)
	}
	b.Header(TraceParent, text)
	rec.Headers = b.TakeHeaders()
}

// maxEventID bounds what a span shows of an event id.
const maxEventID = 200

// spanRow is what a span shows of a row. It keeps nothing of the row's memory.
func spanRow(rec *Record) tracing.Row {
	row := rec.Row
	r := tracing.Row{
		Table: row.Relation.Qualified(), Topic: string([]byte(rec.Topic)),
		Size: len(rec.Value), Tombstone: rec.Value == nil,
	}
	if at := slices.IndexFunc(rec.Headers, func(h Header) bool { return h.Key == IdHeader }); at >= 0 {
		id := rec.Headers[at].Value
		r.EventID = string(id[:min(len(id), maxEventID)])
	}
	if row.Txn != nil {
		at := row.Place()
		r.LSN, r.Seq, r.Commit = at.Commit.String(), at.Ordinal, row.Txn.Time
	}
	return r
}
