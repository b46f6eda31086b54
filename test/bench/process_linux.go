package main

import (
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// signalGroup signals a process and what it started.
func signalGroup(cmd *exec.Cmd, signal syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, signal) }

// cpuTime is what a process has used, user and system time of all its threads, also of
// those that ended. Its stat file says the same in steps of 10 ms, a tenth of a percent
// of an idle measurement; its clock says it in nanoseconds.
func cpuTime(pid int) (time.Duration, bool) {
	const scheduler = 2 // CPUCLOCK_SCHED of the kernel's clock numbers
	var spent unix.Timespec
	if pid <= 0 || unix.ClockGettime(int32(^pid<<3|scheduler), &spent) != nil {
		return 0, false
	}
	return time.Duration(spent.Nano()), true
}
