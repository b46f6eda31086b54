package admin

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestListenError_SaysWhatToDo(t *testing.T) {
	for want, cause := range map[string]error{
		"end the program that has the address": syscall.EADDRINUSE,
		"choose a port from 1024 on":           syscall.EACCES,
		"choose an address of this machine":    syscall.EADDRNOTAVAIL,
		"choose another address":               syscall.EAFNOSUPPORT,
	} {
		err := &ListenError{Address: ":80", Err: &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", cause)}}
		if got := err.Error(); !strings.Contains(got, want) {
			t.Errorf("%v: %s, want %s", cause, got, want)
		}
	}
}
