package main

import (
	"runtime"
	"strconv"
	"testing"
)

func TestLimitProcessors_LeavesAChosenNumberAlone(t *testing.T) {
	chosen := runtime.NumCPU() + 2
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(chosen))
	t.Setenv("GOMAXPROCS", strconv.Itoa(chosen))
	defer limitProcessors(1)()
	if n := runtime.GOMAXPROCS(0); n != chosen {
		t.Errorf("GOMAXPROCS %d, want the %d that was set", n, chosen)
	}
}

func TestLimitProcessors_GivesOneForEachShard(t *testing.T) {
	defer runtime.SetDefaultGOMAXPROCS()
	t.Setenv("GOMAXPROCS", "") // as if it were not there
	runtime.SetDefaultGOMAXPROCS()
	usual := runtime.GOMAXPROCS(0)
	for _, c := range []struct{ machine, shards, want int }{{4, 1, 1}, {4, 0, 1}, {4, 2, 2}, {4, 8, 4}, {1, 1, 1}} {
		runtime.GOMAXPROCS(c.machine)
		restore := limitProcessors(c.shards)
		if n := runtime.GOMAXPROCS(0); n != c.want {
			t.Errorf("%d shards on %d processors: GOMAXPROCS %d, want %d", c.shards, c.machine, n, c.want)
		}
		restore()
		if n := runtime.GOMAXPROCS(0); n != usual {
			t.Errorf("GOMAXPROCS %d is left behind, want %d", n, usual)
		}
	}
}
