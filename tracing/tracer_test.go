package tracing

import (
	"math"
	"testing"
	"time"
)

// kept is a queue of a size.
type kept struct {
	spans []*Span
	room  int
}

func (k *kept) Add(s *Span) bool {
	if len(k.spans) >= k.room {
		return false
	}
	k.spans = append(k.spans, s)
	return true
}

func tracer(cfg Config) (*Tracer, *kept, *time.Time) {
	if cfg.MaxPerSecond == 0 {
		cfg.MaxPerSecond = math.MaxInt32
	}
	queue := &kept{room: 100}
	tr, now := New(cfg, queue), time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	tr.now = func() time.Time { return now }
	return tr, queue, &now
}

func TestPick_TakesSampledContextsAndCountsMalformedOnes(t *testing.T) {
	tr, _, _ := tracer(Config{})
	p := tr.Picker()
	for parent, want := range map[string]bool{
		goodParent: true, "01" + goodParent[2:] + "-more": true, goodParent[:53] + "00": false, "": false, "nonsense": false,
		goodParent[:54] + "a": false, goodParent[:54] + "b": true,
	} {
		if got := p.Pick([]byte(parent)) != nil; got != want {
			t.Errorf("%q: %t", parent, got)
		}
	}
	if n := tr.Counts(); n[InvalidParent] != 1 {
		t.Errorf("counts %v", n)
	}
}

func TestPick_KeepsTheTraceOrBeginsOne(t *testing.T) {
	for mode, keeps := range map[Mode]bool{Child: true, Link: false} {
		tr, _, _ := tracer(Config{Mode: mode})
		s := tr.Picker().Pick([]byte(goodParent[:53] + "ff"))
		c := s.Context()
		if s.KeepsTrace() != keeps || c.Trace == [16]byte{} || c.Span == s.from.Span || c.Span == [8]byte{} || c.Span == s.outer || c.Flags != 3 {
			t.Errorf("%s: %+v of %+v", mode, c, s.from)
		}
		if text := AppendParent(nil, c); len(text) != 55 || text[53] != '0' {
			t.Errorf("%s: flags of a later version are passed on: %s", mode, text)
		}
	}
}

// Rows without a context are picked by the ratio, and no others.
func TestPick_TakesAPartOfTheRowsWithoutContext(t *testing.T) {
	for _, ratio := range []float64{0, 0.25, 1} {
		tr, _, _ := tracer(Config{Sample: ParentOrRatio, Ratio: ratio})
		p, n := tr.Picker(), 0
		for range 8000 {
			if s := p.Pick(nil); s != nil {
				n++
				if s.Context().Trace == [16]byte{} || !s.Context().Sampled() {
					t.Fatalf("%+v", s.Context())
				}
			}
			if p.Pick([]byte(goodParent[:53]+"00")) != nil || p.Pick([]byte("nonsense")) != nil {
				t.Fatal("the ratio takes a row that has a context")
			}
		}
		if got := float64(n) / 8000; math.Abs(got-ratio) > 0.03 {
			t.Errorf("ratio %v: %v", ratio, got)
		}
	}
	tr, _, _ := tracer(Config{Ratio: 1})
	if tr.Picker().Pick(nil) != nil {
		t.Error("the ratio counts without parent_or_ratio")
	}
}

// The relays of a process share the rate; what is over it is not traced at all.
func TestPick_KeepsToTheRateOfAllPickers(t *testing.T) {
	tr, _, now := tracer(Config{MaxPerSecond: 9})
	one, two := tr.Picker(), tr.Picker()
	count := func() (n int) {
		for range 10 {
			for _, p := range []*Picker{one, two} {
				if p.Pick([]byte(goodParent)) != nil {
					n += PerRow
				}
			}
		}
		return n
	}
	if n := count(); n != 8 || tr.Counts()[DroppedRate] != 32 {
		t.Errorf("%d spans in a second, dropped %v", n, tr.Counts())
	}
	*now = now.Add(time.Second)
	if n := count(); n != 8 {
		t.Errorf("%d spans in the next one", n)
	}
}

func TestEnd_CountsWhatTheQueueHasNoRoomForAndEndsOnce(t *testing.T) {
	tr, queue, now := tracer(Config{})
	queue.room = 1
	p := tr.Picker()
	first, second := p.Pick([]byte(goodParent)), p.Pick([]byte(goodParent))
	first.End(*now)
	first.EndAside("late", true, *now)
	second.End(*now)
	if len(queue.spans) != 1 || first.aside != "" || tr.Counts()[DroppedQueue] != PerRow {
		t.Errorf("%d spans, %q, %v", len(queue.spans), first.aside, tr.Counts())
	}
}

// A row that brings no sampled context costs no allocation.
func TestPick_DoesNotAllocateForRowsThatAreNotTraced(t *testing.T) {
	tr, _, _ := tracer(Config{Sample: ParentOrRatio})
	p, unsampled := tr.Picker(), []byte(goodParent[:53]+"00")
	if n := testing.AllocsPerRun(100, func() { p.Pick(nil); p.Pick(unsampled) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPick_Unsampled(b *testing.B) {
	tr, _, _ := tracer(Config{})
	p, unsampled := tr.Picker(), []byte(goodParent[:53]+"00")
	for b.Loop() {
		p.Pick(unsampled)
	}
}
