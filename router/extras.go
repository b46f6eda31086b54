package router

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/tracing"
)

// extras are what records get once they are made.
type extras struct {
	positions bool            // position headers
	picker    *tracing.Picker // nil: no row is traced
}

func (r *Router) extra() *extras {
	if r.extras == nil {
		r.extras = new(extras)
	}
	return r.extras
}

// PositionHeaders has Route add the position headers. The end of the commit is
// known once the commit was read: see Place.
func (r *Router) PositionHeaders() { r.extra().positions = true }

// Traces reports whether rows may be traced.
func (r *Router) Traces() bool { return r.extras != nil && r.extras.picker != nil }

// add adds what records of a row get. own: their headers are the relay's to change.
func (e *extras) add(b *record.Buffer, records []record.Record, row *wal.Row, own bool) {
	if e.picker != nil && len(records) > 0 {
		e.trace(b, &records[0], row, own)
	}
	if e.positions {
		record.AddPositions(b, records, row)
	}
}

// trace has a row traced if the picker wants it. Its record then names the span of sending in the
// header traceparent.
func (e *extras) trace(b *record.Buffer, rec *record.Record, row *wal.Row, own bool) {
	var parent []byte
	if at := lastHeader(rec.Headers, format.TraceParent); at >= 0 {
		parent = rec.Headers[at].Value
	}
	span := e.picker.Pick(parent)
	if span == nil || !b.Trace(rec, span) {
		return
	}
	span.Row = spanRow(rec, row)
	if at := lastHeader(rec.Headers, format.TraceState); at >= 0 {
		span.State(string(rec.Headers[at].Value))
	}
	if own {
		setParent(b, rec, span)
	}
}

func lastHeader(headers []record.Header, name string) int {
	for i := len(headers) - 1; i >= 0; i-- {
		if headers[i].Key == name {
			return i
		}
	}
	return -1
}

// setParent has every traceparent of a record name the span, and gives the record one that has
// none. A tracestate belongs to the row's trace: it does not go into another one.
func setParent(b *record.Buffer, rec *record.Record, span *tracing.Span) {
	text := b.Claim(tracing.AppendParent(b.Tail(64), span.Context()))
	found := false
	for i := range rec.Headers {
		if rec.Headers[i].Key == format.TraceParent {
			rec.Headers[i].Value, found = text, true
		}
	}
	if !span.KeepsTrace() {
		rec.Headers = slices.DeleteFunc(rec.Headers, func(h record.Header) bool { return h.Key == format.TraceState })
	}
	if found {
		return
	}
	for _, h := range rec.Headers {
		b.Header(h.Key, h.Value)
	}
	b.Header(format.TraceParent, text)
	rec.Headers = b.TakeHeaders()
}

// maxEventID bounds what a span shows of an event id.
const maxEventID = 200

// spanRow is what a span shows of a row. It keeps nothing of the row's memory.
func spanRow(rec *record.Record, row *wal.Row) tracing.Row {
	r := tracing.Row{
		Table: row.Relation.Qualified(), Topic: string([]byte(rec.Topic)),
		Size: len(rec.Value), Tombstone: rec.Value == nil,
	}
	if at := slices.IndexFunc(rec.Headers, func(h record.Header) bool { return h.Key == record.IdHeader }); at >= 0 {
		id := rec.Headers[at].Value
		r.EventID = string(id[:min(len(id), maxEventID)])
	}
	if row.Txn != nil {
		commit, seq := row.Place()
		r.LSN, r.Seq, r.Commit = commit.String(), seq, row.Txn.Time
	}
	return r
}
