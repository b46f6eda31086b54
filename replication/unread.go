package replication

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// A connection that is not read may not live for long. When the receive buffer is full, Linux may
// drop what the server sends next. The server's acknowledgements of our status messages come behind
// the dropped bytes, so Linux drops them too, and repeats our messages until TCP_USER_TIMEOUT ends
// the connection (seen on 6.18: after 12 s with a buffer of 64 KiB and 400 commits a second). The slot
// would change hands, and each new session would send rows again. So offer reads on in a long wait:
// keep-alives are handled, and rows are kept as long as the buffer of frames has room. If the buffer is
// full and our messages are still not acknowledged, readOn drops the rows in it and all later ones, until
// the messages are acknowledged. Run then ends with wal.ErrReadPast, once the rows that were decoded
// before are taken.
const (
	// readOnBytes is how much is read at a time. Linux opens a closed window when a sixteenth of
	// the receive buffer is free, and by default that buffer grows to 6 MiB at most.
	readOnBytes = 1 << 20

	// readOnWait is how long a read waits for bytes that are not there yet.
	readOnWait = 5 * time.Millisecond

	// Reading on begins when nobody has taken rows for the patience, a sixth of the server's timeout,
	// and is repeated every fifth of the patience. TCP_USER_TIMEOUT is two thirds of that timeout
	// (impatient of package postgres), so our messages are acknowledged long before.
	patienceOfTimeout = 6
	stepsOfPatience   = 5

	defaultSenderTimeout = 15 * time.Second // where wal_sender_timeout is 0
)

// readOn reads from the connection once nobody has taken its rows for the patience. since is when the
// wait began.
func (s *Stream) readOn(now, since time.Time) error {
	if now.Sub(since) < s.patience || now.Sub(s.readOnAt) < s.patience/stepsOfPatience {
		return nil
	}
	s.readOnAt = now
	s.deadline = time.Time{} // receive sets its own again
	for left := readOnBytes; left > 0; {
		more, err := s.roomToRead()
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
	_, err := s.roomToRead()
	return err
}

// roomToRead makes room in the buffer: it handles the keep-alives at its beginning, and drops its rows
// when it is full and the server's acknowledgements do not get through. more is false when nothing
// should be read: the buffer is full, or the next message ends the copy and is left to whoever reads
// then.
func (s *Stream) roomToRead() (more bool, err error) {
	for !s.readPast && !s.status.frozen && s.frames.at('d', 'k') {
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
	if s.unacknowledged() < statusSize*int(s.patience/resendInterval) { // fewer than are sent in the patience: acknowledgements get through
		return false, nil
	}
	s.readPast = true // no later position is used: rows before it are dropped
	if more, err = s.frames.drop('d'); err != nil {
		return false, s.violation(err)
	}
	return more, nil
}

// errReadPast ends Run after rows were dropped. The connection works.
func (s *Stream) errReadPast() error {
	return fmt.Errorf("stream from slot, behind %s: %w", s.Received(), wal.ErrReadPast)
}
