package socket

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Unacknowledged returns a function that tells how many bytes of what was written to a TCP connection
// the peer has not acknowledged (SIOCOUTQ). conn may be a Conn, or TLS over one. The function returns
// zero for other connections, and where the kernel does not say.
func Unacknowledged(conn net.Conn) func() int {
	if c := Of(conn); c != nil {
		conn = c.Conn
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return func() int { return 0 }
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return func() int { return 0 }
	}
	return func() int { return outgoing(raw) }
}

func outgoing(raw syscall.RawConn) (bytes int) {
	err := raw.Control(func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		if err == nil {
			bytes = n
		}
	})
	if err != nil {
		return 0
	}
	return bytes
}
