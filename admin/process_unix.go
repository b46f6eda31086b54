//go:build unix

package admin

import (
	"syscall"
	"time"
)

// processCPU is what this process has used.
func processCPU() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
