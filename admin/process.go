package admin

import (
	"math"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
)

// processMemory is what the process takes, NaN where the system does not say, and what of it is
// Go's heap.
func processMemory() (resident, heap float64) {
	resident = math.NaN()
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			if pages, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				resident = float64(pages * int64(os.Getpagesize()))
			}
		}
	}
	of := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(of)
	return resident, float64(of[0].Value.Uint64())
}
