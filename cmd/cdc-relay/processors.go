package main

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/rs/zerolog"
)

const (
	processorsLook = 500 * time.Millisecond

	// crowded is where goroutines of one processor begin to wait for each other, in cores
	// in use. On several the same work takes up to a third more, so what is to be
	// given back lies well below.
	crowded = 0.7
	roomy   = 0.45

	calmLooks = 20 // before one processor is tried again
)

// processors keeps the program's goroutines on one processor for as long as one will do.
//
// A relay is woken for a few microseconds at a time, and its goroutines hand on to each
// other. On several processors each time wakes another thread, which costs more than
// what there is to do: docs/benchmarks.md has both.
type processors struct {
	all  bool
	calm int // looks in succession at which one would have done
}

// look takes how many cores were in use since the last one, on average, and tells whether
// all processors are wanted.
func (p *processors) look(used float64) bool {
	if used >= roomy {
		p.calm = 0
	} else {
		p.calm++
	}
	switch {
	case used >= crowded:
		p.all = true
	case p.calm >= calmLooks:
		p.all = false
	}
	return p.all
}

// followLoad gives the runtime one processor or all until ctx ends, and then all. Whoever
// sets GOMAXPROCS has chosen.
func followLoad(ctx context.Context, log zerolog.Logger) {
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 {
		return
	}
	if _, ok := cpuTime(); !ok {
		return
	}
	defer runtime.SetDefaultGOMAXPROCS()
	used := func() time.Duration { t, _ := cpuTime(); return t }
	watchLoad(ctx, used, func(all bool) {
		if all {
			runtime.SetDefaultGOMAXPROCS()
		} else {
			runtime.GOMAXPROCS(1)
		}
		log.Debug().Int("processors", runtime.GOMAXPROCS(0)).Msg("processors in use changed")
	})
}

// watchLoad calls set at its beginning and whenever the answer changes. used is the
// process's CPU time.
func watchLoad(ctx context.Context, used func() time.Duration, set func(all bool)) {
	var p processors
	set(false)
	tick := time.NewTicker(processorsLook)
	defer tick.Stop()
	then, before := time.Now(), used()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, after, all := time.Now(), used(), p.all
		if p.look(float64(after-before)/float64(now.Sub(then))) != all {
			set(p.all)
		}
		then, before = now, after
	}
}
