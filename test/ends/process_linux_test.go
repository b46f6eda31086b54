package ends

import "syscall"

// diesWithParent are attributes of a server that ends when this process does.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
