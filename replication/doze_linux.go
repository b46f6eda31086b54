package replication

import (
	"net"
	"os"
	"syscall"
)

// doze sets how many bytes a TCP socket has to hold before anybody is told of them
// (SO_RCVLOWAT). A read that does not wait takes what is there, however little.
type doze struct {
	conn  syscall.RawConn
	bytes int
	err   error
	set   func(fd uintptr) // made once, so that a rest allocates nothing
}

// newDoze is nil where conn is no TCP connection: the other sockets tell of everything.
func newDoze(conn net.Conn) *doze {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	d := &doze{conn: raw}
	d.set = func(fd uintptr) {
		d.err = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, d.bytes))
	}
	return d
}

func (d *doze) until(bytes int) error {
	if d == nil {
		return nil
	}
	d.bytes = bytes
	if err := d.conn.Control(d.set); err != nil {
		return err
	}
	return d.err
}
