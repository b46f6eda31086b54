package admin

import (
	"bytes"
	"math"
	"os"
	"runtime/metrics"
	"strconv"
	"sync"
)

// statm stays open: each look is one call of the system.
var statm = sync.OnceValue(func() *os.File {
	f, err := os.Open("/proc/self/statm")
	if err != nil {
		return nil
	}
	return f
})

// processMemory is what the process takes, NaN where the system does not say, and what of it is
// Go's heap.
func processMemory() (resident, heap float64) {
	resident = math.NaN()
	var text [128]byte
	if f := statm(); f != nil {
		n, _ := f.ReadAt(text[:], 0)
		if fields := bytes.Fields(text[:n]); len(fields) > 1 {
			if pages, err := strconv.ParseInt(string(fields[1]), 10, 64); err == nil {
				resident = float64(pages * int64(os.Getpagesize()))
			}
		}
	}
	of := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(of)
	return resident, float64(of[0].Value.Uint64())
}
