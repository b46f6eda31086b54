package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// Direct makes reads and writes of conn, a TCP or Unix stream, plain system calls, which the
// scheduler is not told of. All else is conn's: deadlines, closing, waiting, and the shape
// of errors. Any other connection is returned as it is.
//
// As with any net.Conn, several goroutines may use it at a time.
func Direct(conn net.Conn) net.Conn {
	var owner syscall.Conn
	switch c := conn.(type) { // not a type that has one of these inside, and reads of its own
	case *net.TCPConn:
		owner = c
	case *net.UnixConn:
		owner = c
	default:
		return conn
	}
	raw, err := owner.SyscallConn()
	if err != nil {
		return conn
	}
	return &direct{Conn: conn, reader: newCalls(raw.Read, read, false), writer: newCalls(raw.Write, write, true)}
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
	if len(p) == 0 {
		return 0, nil
	}
	n, err := d.writer.do(p)
	if err == nil && n < len(p) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return n, d.named("write", err)
	}
	return n, nil
}

// named gives an error the words of the net package.
func (d *direct) named(op string, err error) error {
	if known, ok := errors.AsType[*net.OpError](err); ok {
		known.Op = op // raw-read, raw-write
		return err
	}
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		err = os.NewSyscallError(op, number)
	}
	return &net.OpError{Op: op, Net: d.LocalAddr().Network(), Source: d.LocalAddr(), Addr: d.RemoteAddr(), Err: err}
}

// calls makes one kind of system call, for one goroutine at a time.
type calls struct {
	mu   sync.Mutex
	wait func(func(fd uintptr) bool) error // until the other returns true
	call func(fd uintptr, p []byte) (int, syscall.Errno)
	all  bool // of p, and not just what the first call takes

	try func(fd uintptr) bool // made once: a call allocates nothing
	p   []byte
	n   int
	err syscall.Errno
}

func newCalls(wait func(func(uintptr) bool) error, call func(uintptr, []byte) (int, syscall.Errno), all bool) *calls {
	c := &calls{wait: wait, call: call, all: all}
	c.try = func(fd uintptr) bool {
		for {
			n, err := c.call(fd, c.p[c.n:])
			switch err {
			case 0:
				c.n += n
				if n == 0 || !c.all || c.n == len(c.p) {
					return true
				}
			case syscall.EINTR:
			case syscall.EAGAIN:
				return false
			default:
				c.err = err
				return true
			}
		}
	}
	return c
}

// do gives how many bytes were moved, with an error too. p must not be empty.
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
