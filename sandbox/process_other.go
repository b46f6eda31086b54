//go:build !linux

package sandbox

import "syscall"

// Other kernels know no parent-death signal; the guard does the work.
func setDeathSignal(*syscall.SysProcAttr) {}
