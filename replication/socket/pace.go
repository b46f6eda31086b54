package socket

import (
	"cmp"
	"time"
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

// Pace decides when to pause between reads. One goroutine uses it, the one that reads the Conn.
//
// A walsender sends row by row. A reader that is always ready takes each row with
// a wake-up and a system call on both sides; one that lets the socket fill costs
// the server half. So in a backlog a small read is followed by a short pause, and by a
// tiny one where the server is late: a server that was held up, or a machine that is
// busy, catches up several times sooner with a reader that does not wake it for each
// row. While the relay is caught up every row is read as it comes. So are rows that come right
// after the server had nothing to send: its commits take long, but no row waits behind another.
type Pace struct {
	Pacing
	sent      int64         // when the server sent the last WAL message
	committed int64         // when the last transaction that was read was committed
	size      int           // of the last read
	flowing   time.Duration // since a read last had to wait for its bytes
	backlog   bool

	mean     int // bytes of a message, in the last sample
	bytes    int // read since
	messages int // in them
}

// took notes what a read gave.
func (p *Pace) took(n int) {
	p.size = n
	if p.bytes += n; p.bytes >= meanSample && p.messages > 0 {
		p.mean, p.bytes, p.messages = p.bytes/p.messages, 0, 0
	}
}

// Pacing is what benchmarks and tests change of it. Zero values mean the constants.
type Pacing struct {
	Buffer     int           // size of the receive buffer
	Pause      time.Duration // length of a pause
	NoLowWater bool          // SO_RCVLOWAT stays 1 during a pause
	Off        bool          // never pause
}

func (p Pacing) room() int { return cmp.Or(p.Buffer, receiveBuffer) }

// Sent notes a WAL message, and when the server sent it.
func (p *Pace) Sent(micros int64) {
	p.sent = micros
	p.messages++
}

// Committed notes when the last transaction that was read was committed.
func (p *Pace) Committed(micros int64) { p.committed = micros }

// Backlog reports whether the stream is in a backlog.
func (p *Pace) Backlog() bool { return p.backlog }

// backlogPause is how long to pause after a small read in a backlog.
func (p *Pace) backlogPause() time.Duration {
	switch {
	case p.Pause > 0:
		return p.Pause
	case p.mean > fullRead:
		return 0 // each fills the socket by itself
	case p.mean > wideMessage:
		return widePause
	}
	return readPause
}

// nextPause is how long to pause before the next read.
func (p *Pace) nextPause() time.Duration {
	if p.Off || p.size == 0 || p.committed == 0 {
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
