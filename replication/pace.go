package replication

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// receiveBuffer is the socket's receive buffer where the server is on the same host. It is
	// large enough for a full read and small enough that the server soon waits for it to drain.
	// On a real network it would limit the rate to one buffer a round trip, so there the kernel
	// chooses.
	receiveBuffer = 64 << 10

	// fullRead is how much a read takes from a socket that filled up. It is half of receiveBuffer,
	// because on loopback one segment is almost as large as the buffer, and the kernel lets in one
	// at a time.
	fullRead = receiveBuffer / 2

	// readPause lets the receive buffer fill after a small read in a backlog. It is several
	// times what a server needs to fill the buffer row by row, even while it waits for a CPU.
	// Behind a full buffer the kernel joins rows, and sending costs half.
	readPause = 20 * time.Millisecond

	// widePause replaces readPause where messages are larger than wideMessage on average: they
	// fill the receive buffer sooner, then the server's send buffer, and the server would wait.
	widePause   = 5 * time.Millisecond
	wideMessage = 600

	// wideBuffer replaces receiveBuffer for the rest of a session where messages are larger than
	// fullRead on average: receiveBuffer would hold hardly one. It does not shrink again: the
	// kernel would drop packets on their way, and the server would send them again.
	wideBuffer = 1 << 20

	meanSample = 1 << 20 // bytes

	// latePause gives a server that is only late some rows to send at once.
	latePause = time.Millisecond

	// unixPause replaces readPause on a Unix socket, which holds some hundred rows whatever its
	// buffer: during a longer pause the server would wait.
	unixPause = 500 * time.Microsecond

	// A stream is in a backlog once it is farBehindMicros behind, until it is within nearEndMicros. A
	// transaction sent more than lateMicros after its commit had to wait: for others, or for its own
	// flush. All three are ages of a transaction when the server sent it, by the server's clock, in
	// microseconds as on the wire.
	farBehindMicros = 200_000
	nearEndMicros   = 50_000
	lateMicros      = 3_000
)

// pace decides when to pause between reads.
//
// A walsender sends row by row. A reader that is always ready takes each row with
// a wake-up and a system call on both sides; one that lets the socket fill costs
// the server half. So in a backlog a small read is followed by a short pause, and by a
// tiny one where the server is late: a server that was held up, or a machine that is
// busy, catches up several times sooner with a reader that does not wake it for each
// row. While the relay is caught up every row is read as it comes. So are rows that come right
// after the server had nothing to send: its commits take long, but no row waits behind another.
type pace struct {
	pacing
	sent      int64         // when the server sent the last WAL message
	committed int64         // when the last transaction read was committed
	size      int           // of the last read
	flowing   time.Duration // since a read last had to wait for its bytes
	backlog   bool
	off       bool // never pause; tests set it

	mean     int // bytes of a message, in the last sample
	bytes    int // read since
	messages int // in them
}

// took notes what a read gave.
func (p *pace) took(n int) {
	p.size = n
	if p.bytes += n; p.bytes >= meanSample && p.messages > 0 {
		p.mean, p.bytes, p.messages = p.bytes/p.messages, 0, 0
	}
}

// pacing is the size of the receive buffer and the length of a pause; zero means the constants.
// Benchmarks try others.
type pacing struct {
	buffer     int
	pause      time.Duration
	noLowWater bool // SO_RCVLOWAT stays 1 during a pause
}

func (p pacing) room() int { return cmp.Or(p.buffer, receiveBuffer) }

// backlogPause is how long to pause after a small read in a backlog.
func (p *pace) backlogPause() time.Duration {
	switch {
	case p.pause > 0:
		return p.pause
	case p.mean > fullRead:
		return 0 // each fills the socket by itself
	case p.mean > wideMessage:
		return widePause
	}
	return readPause
}

// nextPause is how long to pause before the next read.
func (p *pace) nextPause() time.Duration {
	if p.off || p.size == 0 || p.committed == 0 {
		return 0 // the last read returned nothing: the relay is caught up
	}
	behind := p.sent - p.committed
	switch {
	case behind > farBehindMicros:
		p.backlog = true
	case behind < nearEndMicros:
		p.backlog = false
	}
	switch {
	case p.size >= fullRead:
		return 0
	case p.backlog:
		return p.backlogPause()
	case behind > lateMicros && p.flowing >= latePause:
		return min(latePause, p.backlogPause())
	}
	return 0
}

// pacedConn reads a socket in large pieces and pauses between them when pace says so.
// It lies under TLS, which by itself reads a record at a time, and cannot tell a
// small read from a drained socket.
type pacedConn struct {
	net.Conn
	pace     *pace     // nil until the copy begins
	idle     time.Time // when a read last had waited, by latePause at least
	lowWater *lowWater // nil where SO_RCVLOWAT cannot be set
	room     buffered  // nil where the kernel chooses, or has been given wideBuffer

	buf     []byte
	r, w    int // not yet given out
	records tlsRecords
}

// buffered is a connection whose receive buffer can be chosen.
type buffered interface{ SetReadBuffer(bytes int) error }

// pacedDial makes dial give connections that are paced.
func pacedDial(dial pgconn.DialFunc, by pacing) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		g := &pacedConn{Conn: conn, buf: make([]byte, frameBuffer)}
		if c, ok := conn.(buffered); ok && sameHost(conn) {
			_ = c.SetReadBuffer(by.room()) // best effort: without it pausing pays less
			if by.buffer == 0 {
				g.room = c
			}
		}
		return g, nil
	}
}

// sameHost reports whether both ends of a TCP connection have one address.
func sameHost(conn net.Conn) bool {
	here, tcp := conn.LocalAddr().(*net.TCPAddr)
	there, _ := conn.RemoteAddr().(*net.TCPAddr)
	return tcp && there != nil && here.IP.Equal(there.IP)
}

// pacedOf is the pacedConn below conn; nil when there is none.
func pacedOf(conn net.Conn) *pacedConn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	g, _ := conn.(*pacedConn)
	return g
}

// plain is the connection below pacing and TLS.
func plain(conn net.Conn) net.Conn {
	if g := pacedOf(conn); g != nil {
		return g.Conn
	}
	return conn
}

// holdsTLSRecord reports whether TLS can read data without waiting for the socket.
func (g *pacedConn) holdsTLSRecord() bool { return g.records.holdsData(g.buf[g.r:g.w]) }

// follow lets the pace decide from now on.
func (g *pacedConn) follow(p *pace, by pacing) {
	if _, local := g.Conn.(*net.UnixConn); local {
		by.pause = cmp.Or(by.pause, unixPause)
	}
	p.pacing, g.pace = by, p
	if !by.noLowWater {
		g.lowWater = newLowWater(g.Conn)
	}
}

func (g *pacedConn) Read(p []byte) (int, error) {
	if g.r == g.w && len(p) >= 2*receiveBuffer {
		return g.read(p)
	}
	for {
		if g.r < g.w {
			if n := g.records.next(g.buf[g.r:g.w]); n > 0 {
				n = copy(p, g.buf[g.r:g.r+n])
				g.r += n
				g.records.gave(n)
				return n, nil
			}
		}
		g.r, g.w = 0, copy(g.buf, g.buf[g.r:g.w])
		n, err := g.read(g.buf[g.w:])
		if g.w += n; n == 0 {
			return 0, err
		}
	}
}

func (g *pacedConn) read(p []byte) (int, error) {
	if g.pace == nil {
		return g.Conn.Read(p)
	}
	if g.room != nil && g.pace.mean > fullRead {
		_ = g.room.SetReadBuffer(wideBuffer) // or as much as net.core.rmem_max allows
		g.room = nil
	}
	if d := g.pace.nextPause(); d > 0 {
		if err := g.pauseFor(d); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	n, err := g.Conn.Read(p)
	now := time.Now()
	if now.Sub(began) >= latePause {
		g.idle = now
	}
	g.pace.took(n)
	g.pace.flowing = now.Sub(g.idle)
	return n, err
}

// pauseFor lets the socket fill for a while. Not reading is not enough: Go's poller
// gets an event for every segment, whether a read waits or not, and wakes
// up. SO_RCVLOWAT stops these events until the buffer is full.
func (g *pacedConn) pauseFor(d time.Duration) error {
	if err := g.lowWater.until(g.pace.room()); err != nil {
		return err
	}
	time.Sleep(d) //nolint:forbidigo // the wait is the point, and shorter than anybody's patience
	return g.lowWater.until(1)
}
