package main

import (
	"errors"
	"math"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// The garbage collector is told of the container's limit, less a tenth for what is not
// on the heap. What the environment says wins, and without a limit nothing changes.
func TestLimitMemory_FollowsTheContainer(t *testing.T) {
	for name, c := range map[string]struct {
		container memlimit.Provider
		env       string
		want      int64
	}{
		"limited":     {memlimit.Limit(100 << 20), "", 90 << 20},           // an empty variable sets nothing
		"environment": {memlimit.Limit(100 << 20), "50MiB", math.MaxInt64}, // the runtime read it at its start
		"unlimited":   {func() (uint64, error) { return 0, memlimit.ErrNoLimit }, "", math.MaxInt64},
		"no cgroup":   {func() (uint64, error) { return 0, errors.New("no cgroup") }, "", math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			before, percent := debug.SetMemoryLimit(math.MaxInt64), debug.SetGCPercent(100)
			defer func() {
				debug.SetMemoryLimit(before)
				debug.SetGCPercent(percent)
			}()
			t.Setenv("GOMEMLIMIT", c.env)
			t.Setenv("GOGC", "")
			given := limitMemory(c.container)
			if got := debug.SetMemoryLimit(-1); got != c.want {
				t.Errorf("limit %d, want %d", got, c.want)
			}
			if given != c.want%math.MaxInt64 {
				t.Errorf("it gives %d", given)
			}
			if got := debug.SetGCPercent(100); got != 50 {
				t.Errorf("GOGC %d, want 50", got)
			}
			collectForRun()
			if got := debug.SetGCPercent(100); got != 20 {
				t.Errorf("GOGC of run %d, want 20", got)
			}
		})
	}
}

func TestLimitMemory_LeavesGOGCToTheUser(t *testing.T) {
	percent := debug.SetGCPercent(77)
	defer debug.SetGCPercent(percent)
	t.Setenv("GOGC", "77")
	limitMemory(func() (uint64, error) { return 0, memlimit.ErrNoLimit })
	collectForRun()
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("GOGC %d", got)
	}
}
