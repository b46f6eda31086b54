//go:build !linux

package main

import (
	"os/exec"
	"syscall"
	"time"
)

func dieWithParent(*exec.Cmd) {}

func signalGroup(cmd *exec.Cmd, signal syscall.Signal) { _ = cmd.Process.Signal(signal) }

// cpuTime says nothing here.
func cpuTime(int) (time.Duration, bool) { return 0, false }
