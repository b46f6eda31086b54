package replication

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

const (
	// askInterval is how often confirmed is asked while a position that was handed out is not
	// confirmed yet.
	askInterval = 100 * time.Millisecond

	// resendInterval is how often a status is written while the stream is not read because the
	// consumer is slower than the server. Only a write then shows that the server is gone: a
	// closed connection shows within two intervals and a round trip, a lost network when the
	// kernel gives up (limitSilence counts from the oldest unacknowledged byte).
	//
	// A server that does not read collects these in its receive buffer: 0.4 KB/s, 0.6 with TLS.
	// Linux's smallest buffer has room for two minutes. A server that does not read for longer
	// counts as lost.
	resendInterval = 100 * time.Millisecond

	// replyInterval is the minimum time between two equal replies. A stopping server asks again
	// as soon as it has a reply: up to 25 000 times a second.
	replyInterval = 250 * time.Millisecond

	// shutdownAsks is the number of equal requests after which the server counts as stopping. A
	// healthy server asks once, at half its timeout.
	shutdownAsks = 3
)

const statusSize = frameHeader + 34

// status is what the last status message said and when the next one is due. The goroutine that
// owns the connection owns it.
type status struct {
	conn      net.Conn
	confirmed func() wal.LSN

	interval, writeTimeout time.Duration

	write, flush wal.LSN // in the last status; neither goes back
	handed       wal.LSN // highest Through given out, else where the slot stood
	frozen       bool    // flush must never move again

	sent      time.Time // the last status that had something new or was due
	asked     time.Time // the last status that asked for a reply
	lastAsked time.Time // the last call of confirmed
	lastWrite time.Time // the last write of any kind
	owed      bool      // the server waits for a reply

	repeats  int // equal requests for a reply in a row
	repeated wal.LSN
	since    time.Time
}

// due is when tick has something to do.
func (s *status) due() time.Time {
	due := s.sent.Add(s.interval)
	if s.handed > s.flush && !s.frozen {
		due = earlier(due, s.lastAsked.Add(askInterval))
	}
	if s.owed {
		due = earlier(due, s.sent.Add(replyInterval))
	}
	return due
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// tick sends a status if one is due. received is the highest position read.
func (s *status) tick(now time.Time, received wal.LSN) error {
	if now.Before(s.due()) {
		return nil
	}
	flush, err := s.position()
	if err != nil {
		return err
	}
	s.lastAsked = now
	if flush > s.flush || !now.Before(s.sent.Add(s.interval)) || s.owed && !now.Before(s.sent.Add(replyInterval)) {
		// An idle server may send nothing unless it is asked, also while we tell it new positions.
		return s.send(now, received, flush, !now.Before(s.asked.Add(s.interval)))
	}
	return nil
}

// reply answers a request at once if there is something new to say, else within replyInterval.
func (s *status) reply(now time.Time, received wal.LSN) error {
	flush, err := s.position()
	if err != nil {
		return err
	}
	s.owed, s.lastAsked = true, now
	if flush > s.flush || received > s.write || !now.Before(s.sent.Add(replyInterval)) {
		return s.send(now, received, flush, false)
	}
	return nil
}

// position is what may be reported as flushed: what the consumer confirmed.
//
// The server checks nothing: a position beyond what it sent would become the
// slot's, and the rows before it would be gone without a word. So a consumer that
// claims more than it was given ends the stream.
func (s *status) position() (wal.LSN, error) {
	if s.frozen || s.confirmed == nil {
		return s.flush, nil
	}
	return s.check(s.confirmed())
}

func (s *status) check(confirmed wal.LSN) (wal.LSN, error) {
	if confirmed > s.handed {
		return 0, &fault.Error{
			Kind: fault.KindProtocol, Op: "confirm position", LSN: confirmed,
			Err:  fmt.Errorf("only %s was handed out", s.handed),
			Hint: "nothing was reported to the server; this is a defect of the relay, please report it",
		}
	}
	return max(confirmed, s.flush), nil
}

// send writes a status, always with all three positions: the server ignores a flush position of
// zero.
func (s *status) send(now time.Time, received, flush wal.LSN, ask bool) error {
	s.write = max(s.write, received, flush)
	s.flush = flush
	if ask {
		s.asked = now
	}
	var msg [statusSize]byte
	s.encode(&msg, now, ask)
	return s.transmit(now, msg[:])
}

func (s *status) encode(msg *[statusSize]byte, now time.Time, ask bool) {
	msg[0] = 'd'
	binary.BigEndian.PutUint32(msg[1:], statusSize-1)
	body := msg[frameHeader:]
	body[0] = 'r'
	binary.BigEndian.PutUint64(body[1:], uint64(s.write))
	binary.BigEndian.PutUint64(body[9:], uint64(s.flush))
	binary.BigEndian.PutUint64(body[17:], uint64(s.flush))
	binary.BigEndian.PutUint64(body[25:], uint64(now.UnixMicro()-pgoutput.PostgresEpoch))
	if ask {
		body[33] = 1
	}
}

func (s *status) transmit(now time.Time, msg []byte) error {
	s.sent, s.owed = now, false
	return s.writeMessage(now, msg)
}

// resend repeats the last status without asking for a reply. While nothing is read, only a write
// shows that the connection has ended: the peer refuses the first one, and the second one fails.
func (s *status) resend(now time.Time) error {
	var msg [statusSize]byte
	s.encode(&msg, now, false)
	return s.writeMessage(now, msg[:])
}

func (s *status) writeMessage(now time.Time, msg []byte) error {
	// A write that a dead peer blocks must not block the relay.
	if err := s.conn.SetWriteDeadline(now.Add(s.writeTimeout)); err != nil {
		return err
	}
	s.lastWrite = now
	_, err := s.conn.Write(msg)
	return err
}

// keepAlive counts equal requests for a reply in a row. It returns for how long the server has
// repeated them once it counts as stopping, and zero before, or while nothing waits to be
// confirmed.
func (s *status) keepAlive(now time.Time, serverEnd wal.LSN, ask bool) time.Duration {
	if serverEnd != s.repeated {
		s.repeats, s.repeated = 0, serverEnd
	}
	if !ask {
		return 0
	}
	if s.repeats++; s.repeats == 1 {
		s.since = now
	}
	if s.repeats < shutdownAsks || s.handed <= s.flush {
		return 0
	}
	return now.Sub(s.since)
}
