package figures

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func sample(rate, lag float32) Sample {
	s := Unknown()
	s[Acknowledged], s[LagSeconds] = rate, lag
	return s
}

func TestNames_AreThoseOfTheSeries(t *testing.T) {
	for i, name := range Names() {
		if s, ok := Named(name); !ok || s != Series(i) || name == "" {
			t.Errorf("series %d is named %q, which is %d %t", i, name, s, ok)
		}
	}
	if _, ok := Named("nothing"); ok {
		t.Error("a series of no name was found")
	}
}

func TestRing_ReadsSecondsAndTensOfSeconds(t *testing.T) {
	r := NewRing(time.Hour)
	begin := time.Unix(1_000_000, 0)
	for s := range 25 {
		if s == 3 {
			continue // nobody looked
		}
		r.Add(begin.Add(time.Duration(s)*time.Second), sample(float32(s), float32(s%10)))
	}
	of := []Series{Acknowledged, LagSeconds, CPU}
	fine := r.Read(of, begin, begin.Add(5*time.Second), time.Second)
	if got := fmt.Sprint(fine.Values, fine.Step, fine.From.Unix()); got != "[[0 1 2 NaN 4 5] [0 1 2 NaN 4 5] [NaN NaN NaN NaN NaN NaN]] 1s 1000000" {
		t.Error(got)
	}
	coarse := r.Read(of[:2], begin, begin.Add(29*time.Second), 10*time.Second)
	if got := fmt.Sprint(coarse.Values, coarse.Step); got != "[[4.6666665 14.5 22] [9 9 4]] 10s" {
		t.Error(got)
	}
}

func TestRing_ForgetsWhatIsTooOld(t *testing.T) {
	r := NewRing(time.Minute)
	begin := time.Unix(1_000_000, 0)
	for s := range 200 {
		r.Add(begin.Add(time.Duration(s)*time.Second), sample(float32(s), 0))
	}
	all := r.Read([]Series{Acknowledged}, time.Unix(0, 0), begin.Add(199*time.Second), time.Second)
	if n := len(all.Values[0]); n != 60 || all.Values[0][0] != 140 || all.Values[0][59] != 199 {
		t.Errorf("%d seconds are kept: %v", n, all.Values[0])
	}
	if all := r.Read([]Series{Acknowledged}, begin.Add(time.Hour), begin, time.Second); len(all.Values[0]) != 0 {
		t.Errorf("read backwards: %v", all)
	}
	r.Add(time.Unix(-5, 0), sample(1, 1)) // a clock before 1970 is nobody's
}

func TestRing_TakesTheMemoryThatItSays(t *testing.T) {
	r := NewRing(time.Hour)
	size := (cap(r.fine.samples)+cap(r.coarse.samples))*int(numberOfSeries)*4 + (cap(r.fine.numbers)+cap(r.coarse.numbers))*8
	if size > 128<<10 {
		t.Errorf("an hour takes %d bytes", size)
	}
}

// The ring is what a map of seconds says.
func FuzzRing(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 1, 1, 0, 0, 90})
	f.Fuzz(func(t *testing.T, steps []byte) {
		r, model := NewRing(time.Minute), map[int64]float32{}
		at := int64(1_000_000)
		for i, step := range steps {
			at += int64(step % 100)
			v := float32(i)
			r.Add(time.Unix(at, 0), sample(v, v))
			model[at] = v
		}
		got := r.Read([]Series{LagSeconds}, time.Unix(at-100, 0), time.Unix(at, 0), time.Second)
		if len(got.Values[0]) != 60 {
			t.Fatalf("%d values", len(got.Values[0]))
		}
		for i, v := range got.Values[0] {
			want, known := model[got.From.Unix()+int64(i)]
			if known != (v == v) || known && v != want {
				t.Errorf("second %d: %v, want %v %t", got.From.Unix()+int64(i), v, want, known)
			}
		}
	})
}

func TestQuantile_IsOfWhatCameInBetween(t *testing.T) {
	upper := []float64{1, 2, 4}
	before := Buckets{upper, []uint64{100, 100, 100}, 100}
	for name, tt := range map[string]struct {
		counts []uint64
		total  uint64
		q      float64
		want   float64
	}{
		"nothing":             {[]uint64{100, 100, 100}, 100, 0.5, math.NaN()},
		"half of a bucket":    {[]uint64{100, 110, 110}, 110, 0.5, 1.5},
		"the highest":         {[]uint64{105, 109, 110}, 110, 0.99, 3.8},
		"over the last bound": {[]uint64{100, 100, 100}, 110, 0.5, 4},
		"the first":           {[]uint64{110, 110, 110}, 110, 0.1, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			got := Quantile(tt.q, before, Buckets{upper, tt.counts, tt.total})
			if math.IsNaN(got) != math.IsNaN(tt.want) || math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
	var sum Buckets
	sum.Add(before)
	sum.Add(before)
	if sum.Total != 200 || sum.Counts[2] != 200 || before.Counts[2] != 100 {
		t.Errorf("sum %+v of %+v", sum, before)
	}
}
