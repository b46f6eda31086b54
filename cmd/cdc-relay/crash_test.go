package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// crashOnDemand is for the test's executable as the program: it fails in the way that is
// named as soon as its standard input ends, while the program runs.
func crashOnDemand(how string) {
	var fail func(payload string)
	switch how {
	case "panic":
		fail = func(payload string) { panic("what must never be, of " + payload[:1]) } //nolint:forbidigo // this is the crash that is looked at
	case "fatal":
		fail = func(payload string) {
			shared := map[string]int{}
			for range 8 {
				go func() {
					for {
						shared[payload]++
					}
				}()
			}
		}
	default:
		return
	}
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		fail(strings.Clone(secretPassword + "-payload"))
	}()
}

// crash runs the program until it waits for its servers, has it fail, and returns how it
// ended. Its folder would take a core file.
func crash(t *testing.T, how string, signal syscall.Signal) (syscall.WaitStatus, string, string) {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	program := exec.CommandContext(t.Context(), "/bin/sh", "-c", `ulimit -S -c "$(ulimit -H -c)"; exec "$0" run`, executable)
	program.Dir, program.Env = folder, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", asProgram + "=" + how}, closedPorts...)
	input, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log output
	program.Stderr = &log
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = program.Wait() // the state says it
		close(ended)
	}()
	(&life{}).await(t, "it runs", func() bool { return strings.Contains(log.String(), `"state":"reconnecting"`) })
	if signal != 0 {
		if err := program.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	} else if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		_ = program.Process.Kill()
		t.Fatalf("still there a minute later:\n%s", log.String())
	}
	return program.ProcessState.Sys().(syscall.WaitStatus), log.String(), folder
}

// Code 2 is for a wrong configuration, after which no supervisor starts again.
func TestCrash_IsNoExitCodeOfOurs(t *testing.T) {
	for name, tt := range map[string]struct {
		how    string
		signal syscall.Signal
		says   string
	}{
		"panic":        {how: "panic", says: "panic: what must never be"},
		"fatal error":  {how: "fatal", says: "fatal error: concurrent map"},
		"the watchdog": {how: "1", signal: syscall.SIGABRT, says: "SIGABRT: abort"},
		"a person":     {how: "1", signal: syscall.SIGQUIT, says: "SIGQUIT: quit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, log, folder := crash(t, tt.how, tt.signal)
			if !status.Signaled() || status.Signal() != syscall.SIGABRT {
				t.Errorf("ended with code %d, signal %v; want death by SIGABRT", status.ExitStatus(), status.Signal())
			}
			if !strings.Contains(log, tt.says) || strings.Count(log, "\ngoroutine ") < 5 || !strings.Contains(log, "relay.(*Relay).Run") {
				t.Errorf("want %q and the stacks of all goroutines; got\n%s", tt.says, log)
			}
			if strings.Contains(log, secretPassword) {
				t.Errorf("shows memory of the program:\n%s", log)
			}
			if cores, err := filepath.Glob(filepath.Join(folder, "*core*")); err != nil || len(cores) > 0 || status.CoreDump() {
				t.Errorf("wrote its memory: %q, %v, %v", cores, status.CoreDump(), err)
			}
		})
	}
}

// A log that nobody reads any more ends the program by a signal, which the unit restarts after, and not by a code of ours.
func TestCrash_AClosedPipeEndsByItsSignal(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	program := exec.CommandContext(t.Context(), executable, "run")
	program.Dir, program.Env, program.Stderr = t.TempDir(), append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", asProgram + "=1"}, closedPorts...), writer
	input, err := program.StdinPipe() // its end would be the crash
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = input.Close() }()
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	_ = reader.Close()
	_ = program.Wait() // the state says it
	if state := program.ProcessState.Sys().(syscall.WaitStatus); !state.Signaled() || state.Signal() != syscall.SIGPIPE {
		t.Errorf("ended with code %d, signal %v; want death by SIGPIPE", state.ExitStatus(), state.Signal())
	}
}
