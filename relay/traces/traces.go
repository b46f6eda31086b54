// Package traces keeps the spans of records that were handed over and are not durable yet, so that
// none is lost with its session: a consumer may have its record.
package traces

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/tracing"
)

// Unanswered is the reason of a record whose session ended before the brokers answered. They may
// have it, so its span is sent; the next attempt has one of its own.
const Unanswered = "session_ended"

// Open are the spans of one relay without an answer. A batch without a traced record never comes
// here. spans are those of the records' buffer.
type Open struct {
	letters string // topic of dead letters

	mu   sync.Mutex
	open map[id]*tracing.Span
	left map[id]*tracing.Span // those that the session before left, with exactly-once
}

// New returns the spans of a relay whose dead letters go to a topic.
func New(letters string) *Open { return &Open{letters: letters, open: make(map[id]*tracing.Span)} }

// id names a record: a row may become several.
type id struct {
	row wal.Place
	nth uint8
}

func idOf(rec *record.Record) id { return id{rec.Row.Place(), rec.Nth} }

func spanOf(spans []*tracing.Span, rec *record.Record) *tracing.Span {
	if rec.Span == 0 {
		return nil
	}
	return spans[rec.Span-1]
}

// HandOver notes that records go to the sink.
func (o *Open) HandOver(spans []*tracing.Span, records []record.Record) {
	if len(spans) == 0 {
		return
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range records {
		s := spanOf(spans, &records[i])
		if s == nil {
			continue
		}
		name := idOf(&records[i])
		if earlier := o.left[name]; earlier != nil {
			s.Follows(earlier)
			delete(o.left, name)
		}
		s.HandedOver(now)
		o.open[name] = s
	}
}

// Acknowledged ends the spans of records that are durable. A dead letter says why it is one.
func (o *Open) Acknowledged(spans []*tracing.Span, records []record.Record) {
	if len(spans) == 0 {
		return
	}
	now := time.Now()
	for i := range records {
		rec := &records[i]
		s := spanOf(spans, rec)
		if s == nil {
			continue
		}
		o.answered(rec)
		if reason := o.letterReason(rec); reason != "" {
			s.EndAside(reason, true, now)
		} else {
			s.End(now)
		}
	}
}

func (o *Open) letterReason(rec *record.Record) string {
	if rec.Topic != o.letters {
		return ""
	}
	for _, h := range rec.Headers {
		if h.Key == deadletter.HeaderReason {
			return string(h.Value)
		}
	}
	return ""
}

func (o *Open) answered(rec *record.Record) {
	o.mu.Lock()
	delete(o.open, idOf(rec))
	o.mu.Unlock()
}

// Skipped ends the span of a row that is skipped.
func (o *Open) Skipped(spans []*tracing.Span, rec *record.Record, reason string) {
	if s := spanOf(spans, rec); s != nil {
		o.answered(rec)
		s.EndAside(reason, false, time.Now())
	}
}

// Failed notes what came of an attempt to send a record.
func (o *Open) Failed(spans []*tracing.Span, rec *record.Record, class sink.Class, reason string) {
	s := spanOf(spans, rec)
	switch {
	case s == nil:
	case class == sink.Retry:
		s.Event(tracing.Retry, reason, time.Now())
	default:
		s.Event(tracing.Blocked, reason, time.Now())
	}
}

// Close runs at the end of a session. With hidden, nobody sees records that are not acknowledged:
// the next attempt continues their spans.
func (o *Open) Close(hidden bool) {
	o.mu.Lock()
	open := o.open
	o.open, o.left = make(map[id]*tracing.Span), nil
	if hidden {
		o.left = open
	}
	o.mu.Unlock()
	if hidden {
		return
	}
	now := time.Now()
	for _, s := range open {
		s.EndAside(Unanswered, false, now)
	}
}

// Committed ends the spans of records that turn out to be committed: their session did not learn
// of it.
func (o *Open) Committed(covers func(commit wal.LSN, seq uint64) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, s := range o.left {
		if covers(name.row.Commit, name.row.Ordinal) {
			delete(o.left, name)
			s.End(time.Now())
		}
	}
}
