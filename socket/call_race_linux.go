//go:build linux && race

package socket

import (
	"errors"
	"syscall"
)

// The race detector has to see which memory the kernel reads and writes.

func read(fd uintptr, p []byte) (int, syscall.Errno) { return seen(syscall.Read(int(fd), p)) }

func write(fd uintptr, p []byte) (int, syscall.Errno) { return seen(syscall.Write(int(fd), p)) }

func seen(n int, err error) (int, syscall.Errno) {
	number, _ := errors.AsType[syscall.Errno](err)
	return n, number
}
