package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// CloseTimeout is how long the server may take to acknowledge the final position: Close waits no
// longer, also where its context allows more.
const CloseTimeout = 5 * time.Second

// reportUntilClose reports the confirmed position while the consumer waits for its
// acknowledgements. What the server still sends belongs to the next session and is dropped. It
// writes to find out whether the server is still there.
func (s *Stream) reportUntilClose() {
	defer close(s.reportsEnded)
	ticks := time.NewTicker(resendInterval)
	defer ticks.Stop()
	began := time.Now()
	s.readPast = true
	for {
		select {
		case <-s.endReports:
			return
		case <-ticks.C:
			if err := s.tickUnread(time.Now(), began); err != nil {
				s.broken = err
				close(s.lost)
				return
			}
		}
	}
}

// Close reports confirmed for the last time, waits until the server has it, ends the copy and
// closes the connection. It waits until ctx ends, and never longer than CloseTimeout. An error means
// that the server may not know the final position; the connection is closed in any case. Closing
// again does nothing.
func (s *Stream) Close(ctx context.Context, confirmed wal.LSN) error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.endReports != nil {
		close(s.endReports)
		<-s.reportsEnded
	}
	defer s.conn.Close()
	s.catalog.Close()
	if s.broken != nil && !s.released {
		return s.broken
	}
	ctx, cancel := context.WithTimeout(ctx, CloseTimeout)
	defer cancel()
	_ = s.conn.SetDeadline(time.Time{})
	defer context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })()
	if s.released {
		if err := s.confirmReleased(confirmed); err != nil {
			s.log.Debug().Err(err).Msg("could not confirm the rows before the row that the server cannot send")
		}
		return s.broken
	}
	if err := s.endCopy(confirmed); err != nil {
		return postgres.Classify("confirm final position", err)
	}
	return nil
}

func (s *Stream) endCopy(confirmed wal.LSN) error {
	flush := s.status.flush
	if !s.status.frozen {
		var err error
		if flush, err = s.status.check(confirmed); err != nil {
			return err
		}
	}
	if _, err := s.conn.Write(s.lastMessages(flush)); err != nil {
		return err
	}
	if err := s.discard(); err != nil {
		return err
	}
	s.terminate()
	return nil
}

// lastMessages is the last status with the end of the copy. The server handles both in order, so
// its own CopyDone acknowledges the status.
func (s *Stream) lastMessages(flush wal.LSN) []byte {
	s.status.write = max(s.status.write, s.Received(), flush)
	s.status.flush = flush
	var final [statusSize]byte
	s.status.encode(&final, time.Now(), true)
	copyDone := [frameHeader]byte{0: 'c'}
	binary.BigEndian.PutUint32(copyDone[1:], frameHeader-1)
	return append(final[:], copyDone[:]...)
}

func (s *Stream) terminate() {
	terminate := [frameHeader]byte{0: 'X'}
	binary.BigEndian.PutUint32(terminate[1:], frameHeader-1)
	_, _ = s.conn.Write(terminate[:])
}

// confirmReleased confirms over the connection of a server that ended the copy with an error at a
// row. Every session ends at that row at once. Without this none would confirm the rows before
// it, and each would deliver them again. The copy is started once more and ended before the
// server decodes anything: it reads the status first. If another relay has the slot by now, the
// server refuses, and nothing is confirmed.
func (s *Stream) confirmReleased(confirmed wal.LSN) error {
	flush, err := s.status.check(confirmed)
	if err != nil || s.status.frozen || flush <= s.status.flush {
		return err
	}
	query, err := s.startQuery()
	if err != nil {
		return err
	}
	if _, err := s.conn.Write(append(query, s.lastMessages(flush)...)); err != nil {
		return err
	}
	for {
		kind, body, ok, err := s.frames.next()
		switch {
		case err != nil:
			return err
		case !ok:
			if _, err := s.frames.readMore(); err != nil {
				return err
			}
		case kind == 'c':
			s.terminate()
			return nil
		case kind == 'E':
			var e pgproto3.ErrorResponse
			if err := e.Decode(body); err != nil {
				return err
			}
			return pgconn.ErrorResponseToPgError(&e)
		}
	}
}

// discard reads to the server's CopyDone. The server sends what comes before it again to the next
// session. discard pauses between reads as Run does: a server inside a large transaction reads our
// messages sooner when its socket is full.
func (s *Stream) discard() error {
	for {
		kind, body, ok, err := s.frames.next()
		switch {
		case errors.Is(err, errOversized):
			s.frames.skip()
		case err != nil:
			return s.violation(err)
		case !ok:
			if _, err := s.frames.readMore(); err != nil {
				return err
			}
		case kind == 'c':
			return nil
		case kind == 'C':
			return errShutdown("confirm final position")
		case kind == 'E':
			return s.serverError(body)
		}
	}
}
