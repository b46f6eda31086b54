//go:build !unix

package relay

import (
	"testing"
	"time"
)

// cpuTime is not known here.
func cpuTime(testing.TB) time.Duration { return 0 }
