package main

import (
	"io"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// The clock of a process says what the kernel says of it otherwise, in finer steps.
func TestCPUTime_IsThatOfTheProcess(t *testing.T) {
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	fine := false
	const slack = 5 * time.Millisecond
	for end := time.Now().Add(10 * time.Second); !fine && time.Now().Before(end); {
		before := used()
		spent, ok := cpuTime(syscall.Getpid())
		if after := used(); !ok || spent < before-slack || spent > after+slack {
			t.Fatalf("%s, %t, where the kernel says %s to %s", spent, ok, before, after)
		}
		fine = spent%(10*time.Millisecond) != 0
	}
	if !fine {
		t.Error("it goes in steps of 10 ms")
	}
	if _, ok := cpuTime(0); ok {
		t.Error("nobody has used time")
	}
}

// A contestant may be a script that starts others: they count, and end with it.
func TestProcess_WithThoseItStarted(t *testing.T) {
	p, err := launch(exec.Command("/bin/sh", "-c", "sleep 1000 & echo $!; wait"))
	if err != nil {
		t.Fatal(err)
	}
	line, err := p.line()
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	if all := family(p.pid()); len(all) != 2 || all[1] != child {
		t.Errorf("its family is %v, want %d and %d", all, p.pid(), child)
	}
	if err := p.halt(); err != nil {
		t.Error(err)
	}
	ended := make(chan struct{})
	go func() { // until nobody has the other end of the pipe any more
		_, _ = io.Copy(io.Discard, p.stdout)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Errorf("%d outlived what started it", child)
	}
}

func TestProcess_TheStatusOfWhoIsAskedToEnd(t *testing.T) {
	for _, c := range []struct {
		end  func(*process) error
		fine bool
	}{{(*process).halt, true}, {(*process).end, false}} {
		p, err := launch(exec.Command("/bin/sh", "-c", `trap "exit 143" TERM; echo ready; while :; do :; done`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.line(); err != nil {
			t.Fatal(err)
		}
		if err := c.end(p); (err == nil) != c.fine {
			t.Errorf("it ended with 143, and that gives %v", err)
		}
	}
}
