package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server that ends with us. Two things see to that: on Linux the
// kernel kills it when the thread that started it ends, and everywhere a guard,
// a shell that waits for the end of a pipe which only this process holds open,
// kills it and removes its directory.
type process struct {
	cmd   *exec.Cmd
	guard *guard
	done  chan struct{} // closed when it has ended
	err   error         // why; to be read after done
}

// guard is the shell. Closing its pipe makes it act at once; telling it first
// that all is well makes it go quietly.
type guard struct {
	pipe *os.File
	cmd  *exec.Cmd
}

// The guard gets one line when the server was ended properly, and end of file
// when our process died. It leaves the process group, so a Ctrl-C does not reach
// it. "$1" is the server, "$2" its directory.
const guardScript = `
trap '' INT TERM HUP
if read -r line; then exit 0; fi
kids=$(ps -A -o pid= -o ppid= 2>/dev/null | awk -v p="$1" '$2 == p { print $1 }')
kill -CONT "$1" $kids 2>/dev/null
kill -QUIT "$1" 2>/dev/null
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	kill -0 "$1" 2>/dev/null || break
	sleep 0.1
done
kill -KILL "$1" $kids 2>/dev/null
[ -n "$2" ] && rm -rf "$2"
exit 0
`

// forks hands every start to one goroutine that never leaves its thread: the
// kernel sends the parent-death signal when the thread ends, not the process.
var forks = make(chan func())

func init() {
	go func() {
		runtime.LockOSThread()
		for f := range forks {
			f()
		}
	}()
}

func onLastingThread(f func() error) error {
	result := make(chan error)
	forks <- func() { result <- f() }
	return <-result
}

// startProcess starts cmd in a process group of its own. dir is removed with it
// when this process dies; it may be empty.
func startProcess(cmd *exec.Cmd, dir string) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	setDeathSignal(cmd.SysProcAttr)
	cmd.WaitDelay = time.Second // do not wait for grandchildren that hold the log open
	if err := onLastingThread(cmd.Start); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	watch, err := startGuard(cmd.Process.Pid, dir)
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err != nil {
		p.kill()
		return nil, err
	}
	p.guard = watch
	go func() {
		<-p.done
		watch.dismiss()
	}()
	return p, nil
}

func startGuard(pid int, dir string) (*guard, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", "-c", guardScript, "sandbox-guard", strconv.Itoa(pid), dir)
	cmd.Stdin = read
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("start guard: %w", err)
	}
	return &guard{pipe: write, cmd: cmd}, nil
}

// dismiss sends the guard home. The server's number may be somebody else's by
// the time that this process ends, so it must not stay.
func (g *guard) dismiss() {
	_, _ = g.pipe.WriteString("done\n")
	g.pipe.Close()
	_ = g.cmd.Wait()
}

// await waits until the server answers. It fails when the server ends before, or when ctx
// does; the output explains why.
func (p *process) await(ctx context.Context, server string, every time.Duration, out fmt.Stringer, answers func(context.Context) error) error {
	for {
		err := answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("start %s: it ended: %w\n%s", server, p.err, out)
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w (%w)\n%s", server, context.Cause(ctx), err, out)
		case <-time.After(every):
		}
	}
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// kill ends the process group at once and waits.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Process.Kill()
	<-p.done
}

// end asks by a signal and kills after the grace.
func (p *process) end(ask syscall.Signal, grace time.Duration) {
	_ = p.signal(ask)
	select {
	case <-p.done:
	case <-time.After(grace):
		pids := p.family()
		p.kill()
		signalAll(pids, syscall.SIGKILL)
	}
}

// family is the process and its direct children. PostgreSQL's backends leave the
// process group, so a signal to the group does not reach them.
func (p *process) family() []int {
	pids := []int{p.cmd.Process.Pid}
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=").Output()
	if err != nil {
		return append(pids, childrenFromProc(pids[0])...)
	}
	for line := range bytes.Lines(out) {
		fields := strings.Fields(string(line))
		if len(fields) == 2 && fields[1] == strconv.Itoa(pids[0]) {
			if pid, err := strconv.Atoi(fields[0]); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// childrenFromProc is for machines without ps.
func childrenFromProc(parent int) []int {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if err != nil {
		return nil
	}
	var pids []int
	for _, field := range strings.Fields(string(content)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func signalAll(pids []int, s syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, s)
	}
}
