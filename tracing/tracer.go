package tracing

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Sample says which rows are traced.
type Sample string

// The choices.
const (
	Parent        Sample = "parent"          // those whose trace context is sampled
	ParentOrRatio Sample = "parent_or_ratio" // those, and a part of the rows without a context
)

// Mode says how the spans of a row belong to the row's trace.
type Mode string

// The modes.
const (
	Child Mode = "child" // they are part of it
	Link  Mode = "link"  // they are a trace of their own, with a link to it
)

// Config is what a Tracer decides by.
type Config struct {
	Sample       Sample  // defaults to Parent
	Ratio        float64 // from 0 to 1, with ParentOrRatio
	Mode         Mode    // defaults to Child
	MaxPerSecond int     // spans; each row has two
	Database     string  // name of the database; empty: not known
}

// Outcome is what became of a span, as the label of the metric has it.
type Outcome int

// The outcomes.
const (
	Sent          Outcome = iota // the collector took it
	DroppedRate                  // over MaxPerSecond: it was never begun
	DroppedQueue                 // the collector took spans more slowly than they came
	Failed                       // the collector refused it, or did not answer
	InvalidParent                // no span: a row whose traceparent is malformed
	outcomes
)

// Outcomes are all of them, by their labels.
var Outcomes = [outcomes]string{"sent", "dropped_rate", "dropped_queue", "failed", "invalid_parent"}

// PerRow is how many spans a traced row has.
const PerRow = 2

// Queue takes spans that ended. Add must not block, and reports whether it took the span.
type Queue interface{ Add(s *Span) bool }

// Tracer is what the relays of a process share. Its methods are safe from any goroutine.
type Tracer struct {
	cfg    Config
	queue  Queue
	counts [outcomes]atomic.Int64

	mu     sync.Mutex
	second int64 // of the clock
	begun  int   // spans of it

	now func() time.Time
}

// New returns a tracer whose ended spans go to a queue.
func New(cfg Config, queue Queue) *Tracer {
	if cfg.Sample == "" {
		cfg.Sample = Parent
	}
	if cfg.Mode == "" {
		cfg.Mode = Child
	}
	return &Tracer{cfg: cfg, queue: queue, now: time.Now}
}

// Count adds spans to an outcome.
func (t *Tracer) Count(o Outcome, spans int) { t.counts[o].Add(int64(spans)) }

// Counts are the totals, in the order of Outcomes.
func (t *Tracer) Counts() (n [outcomes]int64) {
	for i := range n {
		n[i] = t.counts[i].Load()
	}
	return n
}

// admit takes the spans of one row out of the second's rate.
func (t *Tracer) admit(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := now.Unix(); s != t.second {
		t.second, t.begun = s, 0
	}
	if t.begun+PerRow > t.cfg.MaxPerSecond {
		return false
	}
	t.begun += PerRow
	return true
}

// Picker decides which rows of one relay are traced. One goroutine uses it.
type Picker struct {
	tracer *Tracer
	random *rand.ChaCha8
	below  uint64 // a number below it picks a row without context
}

// Picker returns a picker of the tracer.
func (t *Tracer) Picker() *Picker {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // which never fails
	p := &Picker{tracer: t, random: rand.NewChaCha8(seed)}
	if t.cfg.Sample == ParentOrRatio {
		p.below = uint64(t.cfg.Ratio * (1 << 63))
	}
	return p
}

// Pick begins the span of a row with a traceparent; empty: it has none. Nil: the row is not traced,
// and its headers stay as they are.
func (p *Picker) Pick(parent []byte) *Span {
	if surelyUnsampled(parent) || len(parent) == 0 && !p.draw() {
		return nil
	}
	var from Context
	if len(parent) > 0 {
		var ok bool
		if from, ok = ParseParent(parent); !ok {
			p.tracer.Count(InvalidParent, 1)
			return nil
		}
		if !from.Sampled() {
			return nil
		}
	}
	now := p.tracer.now()
	if !p.tracer.admit(now) {
		p.tracer.Count(DroppedRate, PerRow)
		return nil
	}
	return p.begin(from, now)
}

// draw decides about a row without context.
func (p *Picker) draw() bool { return p.below > 0 && p.random.Uint64()>>1 < p.below }

func (p *Picker) begin(from Context, now time.Time) *Span {
	s := &Span{tracer: p.tracer, from: from, received: now, trace: from.Trace, flags: from.Flags & knownFlags}
	if from == (Context{}) || p.tracer.cfg.Mode == Link {
		p.fill(s.trace[:])
		s.flags = flagSampled | flagRandom
	}
	p.fill(s.outer[:])
	p.fill(s.send[:])
	return s
}

// fill draws an id, which is not zero.
func (p *Picker) fill(id []byte) {
	for i := 0; i < len(id); i += 8 {
		n := p.random.Uint64()
		for n == 0 {
			n = p.random.Uint64()
		}
		binary.BigEndian.PutUint64(id[i:], n)
	}
}
