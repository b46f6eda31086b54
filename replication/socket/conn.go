package socket

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"time"
)

// bufferSize is the size of the buffer for reads below TLS.
const bufferSize = 256 << 10

// Conn reads a socket in large pieces and pauses between them when its Pace says so.
// It lies under TLS, which by itself reads a record at a time, and cannot tell a
// small read from a drained socket.
type Conn struct {
	net.Conn
	pace     *Pace     // nil until the copy begins
	idle     time.Time // when a read last ended that had waited for latePause or longer
	lowWater *lowWater // nil where SO_RCVLOWAT cannot be set
	room     buffered  // nil where the kernel chooses, or has been given wideBuffer

	buf     []byte
	r, w    int // not yet given out
	records tlsRecords
}

// buffered is a connection whose receive buffer can be chosen.
type buffered interface{ SetReadBuffer(bytes int) error }

// Dial makes dial give connections that are paced, once they follow a Pace.
func Dial(dial func(ctx context.Context, network, addr string) (net.Conn, error), by Pacing) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &Conn{Conn: conn, buf: make([]byte, bufferSize)}
		if b, ok := conn.(buffered); ok && sameHost(conn) {
			_ = b.SetReadBuffer(by.room()) // best effort: without it pausing pays less
			if by.Buffer == 0 {
				c.room = b
			}
		}
		return c, nil
	}
}

// sameHost reports whether both ends of a TCP connection have one address.
func sameHost(conn net.Conn) bool {
	here, tcp := conn.LocalAddr().(*net.TCPAddr)
	there, _ := conn.RemoteAddr().(*net.TCPAddr)
	return tcp && there != nil && here.IP.Equal(there.IP)
}

// Of is the Conn that conn is or that lies below its TLS; nil when there is none.
func Of(conn net.Conn) *Conn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, _ := conn.(*Conn)
	return c
}

// HoldsTLSRecord reports whether TLS can read data without waiting for the socket.
func (c *Conn) HoldsTLSRecord() bool { return c.records.holdsData(c.buf[c.r:c.w]) }

// Follow lets p decide from now on.
func (c *Conn) Follow(p *Pace, by Pacing) {
	if _, local := c.Conn.(*net.UnixConn); local {
		by.Pause = cmp.Or(by.Pause, unixPause)
	}
	p.Pacing, c.pace = by, p
	if !by.NoLowWater {
		c.lowWater = newLowWater(c.Conn)
	}
}

func (c *Conn) Read(p []byte) (int, error) {
	if c.r == c.w && len(p) >= 2*receiveBuffer {
		return c.read(p)
	}
	for {
		if c.r < c.w {
			if n := c.records.next(c.buf[c.r:c.w]); n > 0 {
				n = copy(p, c.buf[c.r:c.r+n])
				c.r += n
				c.records.gave(n)
				return n, nil
			}
		}
		c.r, c.w = 0, copy(c.buf, c.buf[c.r:c.w])
		n, err := c.read(c.buf[c.w:])
		if c.w += n; n == 0 {
			return 0, err
		}
	}
}

func (c *Conn) read(p []byte) (int, error) {
	if c.pace == nil {
		return c.Conn.Read(p)
	}
	if c.room != nil && c.pace.mean > fullRead {
		_ = c.room.SetReadBuffer(wideBuffer) // or as much as net.core.rmem_max allows
		c.room = nil
	}
	if d := c.pace.nextPause(); d > 0 {
		if err := c.pauseFor(d); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	n, err := c.Conn.Read(p)
	now := time.Now()
	if now.Sub(began) >= latePause {
		c.idle = now
	}
	c.pace.took(n)
	c.pace.flowing = now.Sub(c.idle)
	return n, err
}

// pauseFor lets the socket fill for a while. Not reading is not enough: Go's poller
// gets an event for every segment, whether a read waits or not, and wakes
// up. SO_RCVLOWAT stops these events until the buffer is full.
func (c *Conn) pauseFor(d time.Duration) error {
	if err := c.lowWater.until(c.pace.room()); err != nil {
		return err
	}
	time.Sleep(d) //nolint:forbidigo // the wait is the point, and shorter than anybody's patience
	return c.lowWater.until(1)
}
