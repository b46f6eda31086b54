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
	// pendingTick is how often confirmed is asked while something handed out is
	// not yet confirmed.
	pendingTick = 100 * time.Millisecond

	// feelTick is how often something is written while the consumer is slower than the
	// server, whose end shows in nothing else then. One that closed the connection is
	// noticed within two of these and the round trip, and a network that is lost by the
	// kernel (limitSilence), which has something unacknowledged to count from.
	//
	// A server that does not read holds these in its receive buffer, 0.4 KB a second, 0.6
	// with TLS. The least that Linux gives has room for two minutes of it; a server that
	// does not read for longer is given up like a lost one.
	feelTick = 100 * time.Millisecond

	// repeatReply is the least time between two equal answers. A stopping server
	// asks again as soon as it is answered: 25 000 times a second if we let it.
	repeatReply = 250 * time.Millisecond

	// shutdownAsks is how many equal requests for a reply count as a server that
	// stops: a healthy one asks once, at half its timeout.
	shutdownAsks = 3
)

const statusSize = frameHeader + 34

// status is what the server was told and when it is to be told again. It belongs
// to the goroutine that owns the connection.
type status struct {
	conn      net.Conn
	confirmed func() wal.LSN

	interval, writeTimeout time.Duration

	write, flush wal.LSN // as last told; neither goes back
	handed       wal.LSN // highest Through given out, else where the slot stood
	frozen       bool    // flush must never move again

	told, asked time.Time // last status that says something new or was due, last time that confirmed was asked
	wrote       time.Time // last of anything
	owed        bool      // the server waits for a reply

	repeats  int // equal requests for a reply in a row
	repeated wal.LSN
	since    time.Time
}

// due is when tick has something to do.
func (s *status) due() time.Time {
	due := s.told.Add(s.interval)
	if s.handed > s.flush && !s.frozen {
		due = earlier(due, s.asked.Add(pendingTick))
	}
	if s.owed {
		due = earlier(due, s.told.Add(repeatReply))
	}
	return due
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// tick tells the server what is due. received is the highest position read.
func (s *status) tick(now time.Time, received wal.LSN) error {
	if now.Before(s.due()) {
		return nil
	}
	flush, err := s.position()
	if err != nil {
		return err
	}
	s.asked = now
	switch {
	case !now.Before(s.told.Add(s.interval)):
		// A quiet healthy server may send nothing at all unless asked.
		return s.send(now, received, flush, true)
	case flush > s.flush, s.owed && !now.Before(s.told.Add(repeatReply)):
		return s.send(now, received, flush, false)
	}
	return nil
}

// reply answers a request at once if that says something new, else soon.
func (s *status) reply(now time.Time, received wal.LSN) error {
	flush, err := s.position()
	if err != nil {
		return err
	}
	s.owed, s.asked = true, now
	if flush > s.flush || received > s.write || !now.Before(s.told.Add(repeatReply)) {
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
			Hint: "nothing was told to the server; this is a defect of the relay, please report it",
		}
	}
	return max(confirmed, s.flush), nil
}

// send tells all three positions. A zero would not mean "none" everywhere, and
// the server takes an absent flush for "no news".
func (s *status) send(now time.Time, received, flush wal.LSN, ask bool) error {
	s.write = max(s.write, received, flush)
	s.flush = flush
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
	s.told, s.owed = now, false
	return s.put(now, msg)
}

// feel says once more what was told, without asking. While nothing is read, the end
// of the connection shows only in this: a peer that is gone refuses the first write,
// and the second one fails.
func (s *status) feel(now time.Time) error {
	var msg [statusSize]byte
	s.encode(&msg, now, false)
	return s.put(now, msg[:])
}

func (s *status) put(now time.Time, msg []byte) error {
	// A write that a dead peer blocks must not block the relay.
	if err := s.conn.SetWriteDeadline(now.Add(s.writeTimeout)); err != nil {
		return err
	}
	s.wrote = now
	_, err := s.conn.Write(msg)
	return err
}

// keepAlive counts equal requests for a reply and says how long they last.
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
