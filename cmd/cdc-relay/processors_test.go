package main

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// One processor serves until it is busy, all serve until one has been enough for a while,
// and a load between the two changes nothing.
func TestWatchLoad(t *testing.T) {
	type phase struct {
		cores  float64
		length time.Duration
	}
	for name, c := range map[string]struct {
		phases []phase
		want   []bool
	}{
		"idle":                       {[]phase{{0.002, time.Hour}}, []bool{false}},
		"at the tip":                 {[]phase{{0.3, time.Hour}}, []bool{false}},
		"one is nearly full":         {[]phase{{0.69, time.Hour}}, []bool{false}},
		"one is full":                {[]phase{{0.95, time.Minute}}, []bool{false, true}},
		"a drain, then the tip":      {[]phase{{0.8, time.Minute}, {0.1, time.Minute}}, []bool{false, true, false}},
		"not given back too soon":    {[]phase{{1.4, time.Minute}, {0.1, 9 * time.Second}, {1.4, time.Minute}}, []bool{false, true}},
		"a busy second now and then": {[]phase{{1.4, time.Minute}, {0.1, 8 * time.Second}, {0.6, time.Second}, {0.1, 8 * time.Second}}, []bool{false, true}},
		"does not swing":             {[]phase{{0.75, time.Minute}, {0.6, time.Hour}}, []bool{false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				used := func() (sum time.Duration) {
					left := time.Since(began)
					for _, p := range c.phases {
						d := min(left, p.length)
						sum += time.Duration(p.cores * float64(d))
						left -= d
					}
					return sum
				}
				whole := time.Duration(0)
				for _, p := range c.phases {
					whole += p.length
				}
				ctx, cancel := context.WithTimeout(t.Context(), whole)
				defer cancel()
				var got []bool
				watchLoad(ctx, used, func(all bool) { got = append(got, all) })
				if !slices.Equal(got, c.want) {
					t.Errorf("all processors: %v, want %v", got, c.want)
				}
			})
		})
	}
}

func TestFollowLoad_LeavesAChosenNumberAlone(t *testing.T) {
	chosen := runtime.NumCPU() + 2
	before := runtime.GOMAXPROCS(chosen)
	defer runtime.GOMAXPROCS(before)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	t.Setenv("GOMAXPROCS", strconv.Itoa(chosen))
	followLoad(ended, zerolog.Nop())
	if n := runtime.GOMAXPROCS(0); n != chosen {
		t.Errorf("GOMAXPROCS %d, want the %d that was set", n, chosen)
	}
}

func TestFollowLoad_IsOneProcessorAndThenAll(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(all + 1) // one is fewer, on any machine
	t.Setenv("GOMAXPROCS", "")  // as if it were not there
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		followLoad(ctx, zerolog.Nop())
		close(ended)
	}()
	for deadline := time.Now().Add(10 * time.Second); runtime.GOMAXPROCS(0) != 1; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("GOMAXPROCS stays at %d", runtime.GOMAXPROCS(0))
		}
	}
	cancel()
	<-ended
	if n := runtime.GOMAXPROCS(0); n != all {
		t.Errorf("GOMAXPROCS %d is left behind, want %d", n, all)
	}
}
