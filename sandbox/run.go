package sandbox

import (
	"os/exec"
	"syscall"
)

// Process is a program that ends with us, however we end.
type Process struct{ *process }

// Run starts a program in a process group of its own.
func Run(cmd *exec.Cmd) (*Process, error) {
	p, err := startProcess(cmd, "")
	if err != nil {
		return nil, err
	}
	return &Process{p}, nil
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal; one to a process that has ended is an error.
func (p *Process) Signal(s syscall.Signal) error { return p.signal(s) }

// Kill is kill -9. It returns when the process is gone.
func (p *Process) Kill() { p.kill() }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is that of a process that has ended, -1 if a signal ended it.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}
