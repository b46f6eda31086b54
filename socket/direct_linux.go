package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// Direct makes reads and writes of conn plain system calls, which the scheduler is not told
// of. All else is conn's: deadlines, closing, waiting, and the shape of errors. What is no
// socket of the net package is returned as it is.
//
// As with any net.Conn, several goroutines may use it at a time.
func Direct(conn net.Conn) net.Conn {
	owner, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := owner.SyscallConn()
	if err != nil {
		return conn
	}
	return &direct{
		Conn:   conn,
		reader: newCalls(raw.Read, syscall.SYS_READ),
		writer: newCalls(raw.Write, syscall.SYS_WRITE),
	}
}

// Below is the connection that Direct was given.
func Below(conn net.Conn) net.Conn {
	if d, ok := conn.(*direct); ok {
		return d.Conn
	}
	return conn
}

type direct struct {
	net.Conn
	reader, writer *calls
}

func (d *direct) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := d.reader.do(p)
	switch {
	case err != nil:
		return 0, d.named("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (d *direct) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		n, err := d.writer.do(p[written:])
		if err != nil {
			return written, d.named("write", err)
		}
		written += n
	}
	return written, nil
}

// named gives an error the words of the net package.
func (d *direct) named(op string, err error) error {
	if known, ok := errors.AsType[*net.OpError](err); ok {
		known.Op = op // raw-read, raw-write
		return err
	}
	return &net.OpError{Op: op, Net: d.LocalAddr().Network(), Source: d.LocalAddr(), Addr: d.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}

// calls makes one kind of system call, one at a time.
type calls struct {
	mu   sync.Mutex
	wait func(func(fd uintptr) bool) error
	try  func(fd uintptr) bool // made once: a call allocates nothing

	p   []byte
	n   int
	err syscall.Errno
}

func newCalls(wait func(func(uintptr) bool) error, number uintptr) *calls {
	c := &calls{wait: wait}
	c.try = func(fd uintptr) bool {
		for {
			n, _, err := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(c.p))), uintptr(len(c.p)))
			switch err {
			case syscall.EINTR:
			case syscall.EAGAIN:
				return false
			default:
				c.n, c.err = int(n), err
				return true
			}
		}
	}
	return c
}

// do waits until the socket takes the call. p must not be empty.
func (c *calls) do(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.p, c.n, c.err = p, 0, 0
	err := c.wait(c.try)
	c.p = nil
	if err == nil && c.err != 0 {
		err = c.err
	}
	return c.n, err
}
