package sandbox

import "syscall"

// SIGKILL also ends a server that is stopped; PostgreSQL's children end when
// they see that their postmaster is gone.
func setDeathSignal(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
