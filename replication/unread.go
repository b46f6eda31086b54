package replication

import (
	"errors"
	"os"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// A connection that is not read may not live for long. When the receive buffer is full, Linux may
// drop what the server sends next. The server's acknowledgements of our status messages come behind
// the dropped bytes, so Linux drops them too, and repeats our messages until TCP_USER_TIMEOUT ends the
// connection (seen on 6.18: after 12 s with a buffer of 64 KiB and 400 commits a second). The slot would
// change hands, and each new session would send rows again. So whoever waits for long reads on:
// keep-alives are handled, and rows are kept as long as the buffer of frames has room. Where our
// messages are not acknowledged then, rows are dropped until they are, and Run ends with
// wal.ErrReadPast once what it had read is taken.
const (
	// readOnBytes is how much is read at a time. Linux opens a closed window when a sixteenth of
	// the receive buffer is free; its default limit is 6 MiB.
	readOnBytes = 1 << 20

	// readOnWait is how long a read waits for bytes that are not there yet.
	readOnWait = 5 * time.Millisecond

	// Reading on begins after a sixth of the server's timeout, and repeats five times as often. So
	// our messages are acknowledged long before two thirds of it are over (postgres.Dial).
	waitOfTimeout = 6
	stepsOfWait   = 5

	defaultSenderTimeout = 15 * time.Second // where the server has none
)

// readOn reads from a connection whose rows nobody has taken since then.
func (s *Stream) readOn(now, since time.Time) error {
	if now.Sub(since) < s.patience || now.Sub(s.readOnAt) < s.patience/stepsOfWait {
		return nil
	}
	s.readOnAt = now
	s.deadline = time.Time{} // receive sets its own again
	for left := readOnBytes; left > 0; {
		more, err := s.makeRoom()
		if err != nil || !more {
			return err
		}
		if err := s.conn.SetReadDeadline(time.Now().Add(readOnWait)); err != nil {
			return s.fail("read from server", err)
		}
		n, err := s.frames.readMore()
		switch {
		case n > 0:
			left -= n
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		default:
			return s.fail("read from server", err)
		}
	}
	_, err := s.makeRoom()
	return err
}

// makeRoom handles the keep-alives at hand. Where rows fill the buffer and the server does not get
// through to us, it drops them. more is false when nothing should be read: the buffer is full, or
// the next message ends the copy and is left to whoever reads then.
func (s *Stream) makeRoom() (more bool, err error) {
	for !s.readPast && s.frames.at('d', 'k') {
		kind, body, ok, err := s.frames.next()
		if err != nil {
			return false, s.violation(err)
		}
		if !ok {
			return true, nil
		}
		if err := s.message(kind, body); err != nil {
			return false, err
		}
	}
	if s.frames.unread() < frameBuffer/2 && !s.readPast {
		return true, nil
	}
	if s.unacknowledged() < statusSize*int(s.patience/resendInterval) {
		return false, nil
	}
	s.readPast = true // a position that comes later says nothing: rows before it are dropped
	if more, err = s.frames.drop('d'); err != nil {
		return false, s.violation(err)
	}
	return more, nil
}

// errReadPast ends Run after rows were dropped. The connection works.
func (s *Stream) errReadPast() error {
	return &fault.Error{Kind: fault.KindRetry, Op: "stream from slot", LSN: s.Received(), Err: wal.ErrReadPast}
}
