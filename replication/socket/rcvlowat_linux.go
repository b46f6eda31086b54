package socket

import (
	"net"
	"os"
	"syscall"
)

// lowWater sets how many bytes a TCP socket has to hold before the kernel reports them
// (SO_RCVLOWAT). A read that does not wait takes what is there, however little.
type lowWater struct {
	conn  syscall.RawConn
	bytes int
	err   error
	set   func(fd uintptr) // made once, so that a pause allocates nothing
}

// newLowWater is nil where conn is no TCP connection: other sockets have no such option.
func newLowWater(conn net.Conn) *lowWater {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	d := &lowWater{conn: raw}
	d.set = func(fd uintptr) {
		d.err = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, d.bytes))
	}
	return d
}

func (d *lowWater) until(bytes int) error {
	if d == nil {
		return nil
	}
	d.bytes = bytes
	if err := d.conn.Control(d.set); err != nil {
		return err
	}
	return d.err
}
