//go:build unix

package relay

import (
	"syscall"
	"testing"
	"time"
)

// cpuTime is what this process has taken, in its own code and in the kernel.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
