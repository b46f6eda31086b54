package tracing

import (
	"slices"
	"sync/atomic"
	"time"
)

// Bytes is about what a Span holds, for accounting.
const Bytes = 640

// maxEvents bounds the events of a span: a row may be tried for days.
const maxEvents = 16

// Row is what a span shows of its row and record: never a key, a value or a header but the event id.
type Row struct {
	Table     string // schema.name
	Topic     string
	EventID   string
	LSN       string // commit record of the transaction, as logs name it
	Seq       uint64 // ordinal in the transaction
	Commit    time.Time
	Size      int // of the value
	Tombstone bool
}

// event is something that happened to a row, at a time.
type event struct {
	name, reason string
	at           time.Time
}

// Span is one traced row. Until it is handed over, and whenever it has no answer, its relay's
// goroutine alone uses it; End may run on a goroutine of the sink.
type Span struct {
	Row

	tracer *Tracer
	from   Context // of the row; zero: it has none
	state  string  // tracestate of the row

	trace       [16]byte
	outer, send [8]byte // ids of the two spans
	flags       byte

	received time.Time // when the relay made the record
	handed   time.Time // when the client got it first
	end      time.Time // of the answer
	attempts int
	events   []event
	dropped  int // events beyond maxEvents

	aside string // why the row was set aside; empty: it was delivered
	ended atomic.Bool
}

// Context is that of the record: a consumer's span hangs below the one of sending.
func (s *Span) Context() Context { return Context{Trace: s.trace, Span: s.send, Flags: s.flags} }

// KeepsTrace reports whether the record stays in the trace of its row, whose tracestate is then
// its own too.
func (s *Span) KeepsTrace() bool { return s.trace == s.from.Trace }

// State gives the span the row's tracestate.
func (s *Span) State(text string) { s.state = text }

// HandedOver notes an attempt to send the record.
func (s *Span) HandedOver(now time.Time) {
	if s.handed.IsZero() {
		s.handed = now
	}
	s.attempts++
}

// The events that a row may have.
const (
	Retry   = "retry"   // an attempt failed, and another one follows
	Blocked = "blocked" // the relay is blocked at the row

	received     = "received"
	deadLettered = "dead_lettered"
)

// Event notes an event with its reason. One that repeats is counted only.
func (s *Span) Event(name, reason string, now time.Time) {
	if len(s.events) >= maxEvents {
		s.dropped++
		return
	}
	s.events = append(s.events, event{name, reason, now})
}

// Follows continues an earlier span of the same row that nobody can have seen: its Kafka
// transaction was aborted. The row has been with the relay since then.
func (s *Span) Follows(earlier *Span) {
	s.received = earlier.received
	s.attempts += earlier.attempts
	s.events = append(slices.Clone(earlier.events), s.events...)
	s.dropped += earlier.dropped
}

// End ends the span, the first time that it is ended, and gives it to the queue.
func (s *Span) End(now time.Time) {
	if s.ended.CompareAndSwap(false, true) {
		s.enqueue(now)
	}
}

// EndAside is End for a row that is not delivered, with the reason. letter: it is a dead letter.
func (s *Span) EndAside(reason string, letter bool, now time.Time) {
	if !s.ended.CompareAndSwap(false, true) {
		return
	}
	s.aside = reason
	if letter {
		s.events = append(s.events, event{deadLettered, reason, now})
	}
	s.enqueue(now)
}

func (s *Span) enqueue(now time.Time) {
	s.end = now
	if !s.tracer.queue.Add(s) {
		s.tracer.Count(DroppedQueue, PerRow)
	}
}

// times are the beginnings of the two spans. skewed: the database's clock is ahead, or the relay's
// behind, so the outer one begins no earlier than the other.
func (s *Span) times() (outer, send time.Time, skewed bool) {
	send = s.handed
	if send.IsZero() {
		send = s.received // it was never handed over
	}
	switch {
	case s.Commit.IsZero(): // a message outside any transaction
		return s.received, send, false
	case s.Commit.After(send):
		return send, send, true
	}
	return s.Commit, send, false
}
