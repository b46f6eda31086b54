package postgres

import (
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// limitSilence has the kernel end a TCP connection whose peer has acknowledged nothing of
// what was sent for so long (TCP_USER_TIMEOUT), instead of after a quarter of an hour. A
// Unix socket's peer is on this machine, and its end is always seen.
//
// A peer whose receive buffer is full for so long counts as well, though it is there. Who
// writes has to write so little that a server which does not read for minutes has room
// for it: replication.resendInterval has the figures.
func limitSilence(conn net.Conn, limit time.Duration) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds())))
	})
	if err != nil {
		return err
	}
	return failed
}
