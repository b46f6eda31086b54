//go:build !unix

package admin

import "time"

// processCPU is what this process has used; 0: not known.
func processCPU() time.Duration { return 0 }
