//go:build unix

package main

import "syscall"

// coreLimit is too little for any core file. Linux takes exactly 1 for more than that: it
// starts no program of core_pattern either, which a limit of 0 does not keep it from.
const coreLimit = 1

// forbidCores cannot be taken back, nor by programs that this one starts.
func forbidCores() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_CORE, &limit) != nil || limit.Max > coreLimit {
		limit.Max = coreLimit
	}
	limit.Cur = limit.Max
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &limit) // fails below our systemd unit, which has set a limit itself
}
