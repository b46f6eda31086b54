package relaytest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var binary struct {
	once sync.Once
	path string
	err  error
}

// Binary builds cmd/cdc-relay once, as `make build` does but for short mode, and returns its path.
func Binary(t testing.TB) string {
	t.Helper()
	binary.once.Do(func() {
		dir, err := sandbox.TempDir("binary")
		if err != nil {
			binary.err = err
			return
		}
		harness.AtExit(func() error { return os.RemoveAll(dir) })
		binary.path = filepath.Join(dir, "cdc-relay")
		cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary.path, "github.com/cdc-relay/cdc-relay/cmd/cdc-relay")
		if !testing.Short() { // which takes the packages as they were compiled for the tests
			cmd.Args = slices.Insert(cmd.Args, 2, "-trimpath")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			binary.err = errors.Join(err, errors.New(string(out)))
		}
	})
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

// Process is the real binary at work.
type Process struct {
	cmd  *exec.Cmd
	out  harness.Output
	done chan struct{}
}

// Exec starts the binary with a verb and the pipeline's configuration. A test
// that ends kills it.
func (p *Pipeline) Exec(t testing.TB, verb ...string) *Process {
	t.Helper()
	return p.ExecUnder(t, nil, verb...)
}

// ExecUnder is Exec by way of another command, which replaces itself with the one
// that follows its arguments.
func (p *Pipeline) ExecUnder(t testing.TB, prefix []string, verb ...string) *Process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cdc-relay.yaml")
	if err := os.WriteFile(file, []byte(p.YAML), 0o600); err != nil {
		t.Fatal(err)
	}
	command := slices.Concat(prefix, []string{Binary(t)}, verb, []string{"--config", file})
	process := &Process{cmd: exec.Command(command[0], command[1:]...), done: make(chan struct{})}
	process.cmd.Stdout, process.cmd.Stderr = &process.out, &process.out
	process.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	if err := process.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = process.cmd.Wait() // the outcome is in ProcessState
		close(process.done)
	}()
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			t.Logf("%v:\n%s", verb, &process.out)
		}
	})
	return process
}

// Kill is kill -9. It returns when the process is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Terminate is SIGTERM. A process that has not said anything yet may not catch
// signals either, and would be killed by it: it is given a while.
func (p *Process) Terminate(t testing.TB) {
	t.Helper()
	for patience := time.Now().Add(Patience); p.Output() == "" && time.Now().Before(patience); {
		select {
		case <-p.done:
			patience = time.Time{}
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// Wait returns the exit code, -1 for a process that was killed.
func (p *Process) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(Patience):
		t.Fatalf("the process did not end within %s\n%s", Patience, &p.out)
		return 0
	}
}

// Ended reports whether it has.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Output is what it wrote so far.
func (p *Process) Output() string { return p.out.String() }

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// PeakMemory is the most memory, in bytes, that the process had resident so far. It
// is read from Linux's /proc: the figure that a process leaves at its end also
// counts the parent it was forked from.
func (p *Process) PeakMemory(t testing.TB) int {
	t.Helper()
	peak, err := p.peak()
	if err != nil {
		t.Fatal(err)
	}
	return peak
}

// PeakUntilEnd is PeakMemory of a process that ends of its own accord, as it was shortly before.
func (p *Process) PeakUntilEnd(t testing.TB) (peak int) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; {
		now, err := p.peak()
		peak = max(peak, now)
		select {
		case <-p.done:
			if peak == 0 {
				t.Fatalf("it ended before its memory was looked at: %v", err)
			}
			return peak
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the process did not end within %s\n%s", Patience, &p.out)
		}
	}
}

func (p *Process) peak() (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if text, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")))
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no VmHWM in the status of process %d", p.cmd.Process.Pid)
}
