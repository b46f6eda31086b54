package delivery

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/tracing"
)

// traces are the spans of records that were handed over and are not durable yet, so that none is
// lost with its session: a consumer may have its record. A batch without a traced record never
// comes here.
type traces struct {
	mu   sync.Mutex
	open map[recordID]*tracing.Span
	left map[recordID]*tracing.Span // those that the session before left, with exactly-once
}

// spanOf is the span of a record in a buffer with spans; nil: it has none.
func spanOf(spans []*tracing.Span, rec *record.Record) *tracing.Span {
	if rec.Span == 0 || rec.Row == nil {
		return nil
	}
	return spans[rec.Span-1]
}

// handOver notes that records go to the sink.
func (t *traces) handOver(spans []*tracing.Span, records []record.Record, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range records {
		s := spanOf(spans, &records[i])
		if s == nil {
			continue
		}
		id := recordName(&records[i])
		if earlier := t.left[id]; earlier != nil {
			s.Follows(earlier)
			delete(t.left, id)
		}
		s.HandedOver(now)
		put(&t.open, id, s)
	}
}

// acknowledged ends the spans of records that are durable. A dead letter says why it is one.
func (t *traces) acknowledged(spans []*tracing.Span, records []record.Record, letters string, now time.Time) {
	for i := range records {
		rec := &records[i]
		s := spanOf(spans, rec)
		if s == nil {
			continue
		}
		t.answered(rec)
		reason := ""
		if rec.Topic == letters {
			reason = letterReason(rec)
		}
		if reason == "" {
			s.End(now)
		} else {
			s.EndAside(reason, true, now)
		}
	}
}

func letterReason(rec *record.Record) string {
	for _, h := range rec.Headers {
		if h.Key == deadletter.HeaderReason {
			return string(h.Value)
		}
	}
	return ""
}

func (t *traces) answered(rec *record.Record) {
	t.mu.Lock()
	delete(t.open, recordName(rec))
	t.mu.Unlock()
}

// skipped ends the span of a row that is skipped.
func (t *traces) skipped(spans []*tracing.Span, rec *record.Record, reason string) {
	if s := spanOf(spans, rec); s != nil {
		t.answered(rec)
		s.EndAside(reason, false, time.Now())
	}
}

// tried notes what came of an attempt to send a record.
func (t *traces) tried(spans []*tracing.Span, rec *record.Record, f *sink.Failure) {
	s := spanOf(spans, rec)
	switch {
	case s == nil:
	case f.Class == sink.Retry:
		s.Event(tracing.Retry, f.Reason, time.Now())
	default:
		s.Event(tracing.Blocked, f.Reason, time.Now())
	}
}

// unanswered is the reason of a record whose session ended before the brokers answered. They may
// have it, so its span is sent; the next attempt has one of its own.
const unanswered = "session_ended"

// close runs at the end of a session. With hidden, nobody sees records that are not acknowledged:
// the next attempt continues their spans.
func (t *traces) close(hidden bool) {
	t.mu.Lock()
	open := t.open
	t.open, t.left = nil, nil
	if hidden {
		t.left = open
	}
	t.mu.Unlock()
	if hidden {
		return
	}
	now := time.Now()
	for _, s := range open {
		s.EndAside(unanswered, false, now)
	}
}

// committed ends the spans of records that turn out to be committed: their session did not learn
// of it.
func (t *traces) committed(rec *checkpoint.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, s := range t.left {
		if rec.Covers(id.row.Commit, id.row.Seq) {
			delete(t.left, id)
			s.End(time.Now())
		}
	}
}

// Close runs when the session waits for no answer any more.
func (d *Delivery) Close(cause error) {
	d.guarantee.Close(cause)
	d.m.traces.close(d.Rules().Fenced)
}
