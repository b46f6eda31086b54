package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a contestant or one of our own roles, in a process group of its own: an
// interrupt of ours is not one of its own, and what it started ends with it. It dies
// with us.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *tail
	done   chan struct{}
	err    error // to be read after done
}

// forks hands every start to one goroutine that never leaves its thread: the
// kernel sends the parent-death signal when the thread ends, not the process.
var forks = sync.OnceValue(func() chan func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})

func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, stderr: &tail{}, done: make(chan struct{})}
	cmd.Stderr = p.stderr
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Ours and not the command's: its own would be closed by Wait, read or not.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, p.stdout = write, bufio.NewReader(read)
	cmd.WaitDelay = stopGrace / 2 // a child of its own may keep its output open
	dieWithParent(cmd)
	failed := make(chan error)
	forks() <- func() { failed <- cmd.Start() }
	err = <-failed
	write.Close()
	if err != nil {
		read.Close()
		return nil, err
	}
	go func() {
		p.err = cmd.Wait()
		signalGroup(cmd, syscall.SIGKILL)
		if errors.Is(p.err, exec.ErrWaitDelay) {
			p.err = nil
		}
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// line is the next line of its output.
func (p *process) line() (string, error) {
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%w; it said: %s", err, p.stderr)
	}
	return strings.TrimSpace(line), nil
}

// drain reads output that nobody wants, so that its writer never waits.
func (p *process) drain() { go func() { _, _ = io.Copy(p.stderr, p.stdout) }() }

// stopGrace is how long a process may take to end.
const stopGrace = 40 * time.Second

// halt asks by SIGTERM and kills after a while.
func (p *process) halt() error {
	_ = p.stdin.Close()
	select {
	case <-p.done: // its number may be another's by now
		return nil
	default:
	}
	signalGroup(p.cmd, syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(stopGrace):
		signalGroup(p.cmd, syscall.SIGKILL)
		<-p.done
		return errors.New("it did not end when asked and was killed")
	}
}

// end halts what has to end well.
func (p *process) end() error {
	if err := p.halt(); err != nil {
		return err
	}
	if p.err != nil && p.cmd.ProcessState.ExitCode() >= 0 {
		return fmt.Errorf("%w: %s", p.err, p.stderr)
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if n := len(t.text); n > 8<<10 {
		t.text = append(t.text[:0], t.text[n-4<<10:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// Usage is what a group of processes took.
type Usage struct {
	CPU  time.Duration
	Peak int64 // bytes of resident memory
}

// gauge follows the groups of processes of one run: the contestant with its
// children, PostgreSQL's backends in one database, the broker.
type gauge struct {
	contestant, broker int
	backends           func() []int // asked now and then; nil: PostgreSQL does not run here
	known              []int
	asked              time.Time

	mu     sync.Mutex
	before map[int]time.Duration
	cpu    map[string]map[int]time.Duration
	peak   map[string]int64
	stop   chan struct{}
	ended  chan struct{}
}

// The groups.
const (
	groupContestant = "contestant"
	groupServer     = "PostgreSQL"
	groupBroker     = "broker"
)

func newGauge(contestant, broker int, backends func() []int) *gauge {
	g := &gauge{contestant: contestant, broker: broker, backends: backends,
		before: map[int]time.Duration{}, cpu: map[string]map[int]time.Duration{}, peak: map[string]int64{},
		stop: make(chan struct{}), ended: make(chan struct{})}
	if broker > 0 {
		g.before[broker], _ = cpuTime(broker)
	}
	go func() {
		defer close(g.ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				g.look()
			case <-g.stop:
				return
			}
		}
	}()
	return g
}

// look reads every counter. A process that ended keeps its last one.
func (g *gauge) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, pid := range family(g.contestant) {
		g.note(groupContestant, pid)
	}
	g.note(groupBroker, g.broker)
	if g.backends != nil && time.Since(g.asked) > 100*time.Millisecond {
		g.known, g.asked = g.backends(), time.Now()
	}
	for _, pid := range g.known {
		g.note(groupServer, pid)
	}
}

func (g *gauge) note(group string, pid int) {
	if pid <= 0 {
		return
	}
	spent, ok := cpuTime(pid)
	if !ok {
		return
	}
	if g.cpu[group] == nil {
		g.cpu[group] = map[int]time.Duration{}
	}
	g.cpu[group][pid] = spent - g.before[pid]
	g.peak[group] = max(g.peak[group], memory(pid, "VmHWM:"))
}

// usage ends the gauge.
func (g *gauge) usage() map[string]Usage {
	close(g.stop)
	<-g.ended
	g.look()
	found := map[string]Usage{}
	for group, pids := range g.cpu {
		u := Usage{Peak: g.peak[group]}
		for _, spent := range pids {
			u.CPU += spent
		}
		found[group] = u
	}
	return found
}

// cpuTimes is what a process and those that it started have used.
func cpuTimes(pid int) time.Duration {
	var sum time.Duration
	for _, pid := range family(pid) {
		spent, _ := cpuTime(pid)
		sum += spent
	}
	return sum
}

// memory is a line of a process's status file, in bytes; 0 where there is none.
func memory(pid int, name string) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// family is a process with all those below it.
func family(pid int) []int {
	if pid <= 0 {
		return nil
	}
	all := []int{pid}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		data, _ := os.ReadFile(task)
		for _, field := range strings.Fields(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, family(child)...)
			}
		}
	}
	return all
}

// machine says what this is.
func machine() string {
	model := runtime.GOARCH
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	total := ""
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		if fields := strings.Fields(string(data)); len(fields) > 1 {
			kb, _ := strconv.ParseInt(fields[1], 10, 64)
			total = fmt.Sprintf(", %d GB of memory", (kb+1<<19)>>20)
		}
	}
	kernel := ""
	if out, err := exec.Command("uname", "-sr").Output(); err == nil {
		kernel = ", " + strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("%d cores of %s%s%s", runtime.NumCPU(), model, total, kernel)
}

// awaitEnd waits for a process to end by itself.
func (p *process) awaitEnd(ctx context.Context) error {
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("%w: %s", p.err, p.stderr)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
