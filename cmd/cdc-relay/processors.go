package main

import (
	"os"
	"runtime"
)

// limitProcessors gives the runtime one processor for each shard, and returns what takes that
// back. A relay hands each row from one goroutine to the next: on several processors each
// hand-over wakes another thread, which costs more than the row. Whoever sets GOMAXPROCS
// has chosen.
func limitProcessors(shards int) (restore func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	runtime.GOMAXPROCS(min(max(shards, 1), runtime.GOMAXPROCS(0)))
	return runtime.SetDefaultGOMAXPROCS
}
