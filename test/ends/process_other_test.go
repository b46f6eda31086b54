//go:build !linux

package ends

import "syscall"

func diesWithParent() *syscall.SysProcAttr { return nil }
