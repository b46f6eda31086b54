package replication

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput"
	"github.com/cdc-relay/cdc-relay/replication/socket"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"
)

// CloseTimeout is how long the server may take to acknowledge the final position: Close waits no
// longer, also where its context allows more.
const CloseTimeout = 5 * time.Second

// Open connects, checks slot, publication and tables, and starts the copy at the slot's confirmed
// position. ctx bounds Open alone. The stream must be closed, whether or not Run was called.
func Open(ctx context.Context, cfg postgres.Config, opt Options, logger zerolog.Logger) (*Stream, error) {
	conn, err := postgres.ConnectThrough(ctx, cfg, true, func(dial pgconn.DialFunc) pgconn.DialFunc { return socket.Dial(dial, opt.pacing) })
	if err != nil {
		return nil, err
	}
	known, err := catalog.Inspect(ctx, conn, cfg)
	if err == nil {
		err = conn.SyncConn(ctx)
	}
	if err != nil {
		_ = conn.Close(ctx)
		return nil, postgres.Classify("prepare stream", err)
	}
	if known.Confirmed == 0 {
		_ = conn.Close(ctx)
		return nil, &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonSlotUnusable, Op: "start replication", Subject: "slot " + cfg.Slot,
			Err: errors.New("the slot has no confirmed position"), Hint: "it was not created completely: drop it and run `cdc-relay setup`"}
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		return nil, postgres.Classify("take over connection", err)
	}
	for _, warning := range known.Warnings {
		logger.Warn().Msg(warning)
	}
	s := newStream(cfg, opt, logger, hijacked.Conn, known)
	s.process = int(hijacked.PID)
	if err := s.startCopy(ctx); err != nil {
		_ = s.conn.Close()
		return nil, err
	}
	return s, nil
}

func newStream(cfg postgres.Config, opt Options, logger zerolog.Logger, conn net.Conn, known *catalog.Catalog) *Stream {
	opt = opt.withDefaults(known.SenderTimeout)
	s := &Stream{
		cfg: cfg, opt: opt, log: logger, conn: conn, said: make(notices),
		frames: newFrames(conn),
		start:  known.Confirmed,
		origin: known.Origin(),
		abort:  make(chan struct{}),
		lost:   make(chan struct{}),

		patience: cmp.Or(known.SenderTimeout, defaultSenderTimeout) / patienceOfTimeout,
	}
	s.unacknowledged = socket.Unacknowledged(conn)
	s.frames.limit = opt.MaxRowBytes + frameHeader + walHeader
	if c := socket.Of(conn); c != nil {
		c.Follow(&s.pace, opt.pacing)
		if _, secure := conn.(*tls.Conn); secure {
			// A read of TLS gives one record, and the server puts each message into one of its own:
			// batches would be of one row.
			s.frames.more = c.HoldsTLSRecord
		}
	}
	decode := pgoutput.Options{
		Tables: cfg.Tables, Wants: cfg.Wants, Messages: cfg.Messages, MaxRows: opt.MaxBatchRows, MaxBytes: opt.MaxBatchBytes,
		Start: s.start, History: known.WALEnd, // the first keep-alive repeats Start
	}
	if slices.ContainsFunc(cfg.Wants, func(w wal.Wants) bool { return w.Meta }) {
		s.catalog = catalog.NewDescriber(cfg)
		decode.Describe = s.catalog.Describe
	}
	s.dec = pgoutput.NewDecoder(decode)
	for _, rel := range known.Relations {
		s.dec.Expect(rel)
	}
	s.reached = opt.Until != 0 && s.start >= opt.Until
	s.tables = append(known.Relations, s.dec.Messages()...)
	s.binary = opt.Binary != nil && opt.Binary(s.tables, s.start, known.WALEnd)
	s.status = status{
		conn: conn, interval: opt.StatusInterval, writeTimeout: cfg.SenderTimeout(),
		write: s.start, flush: s.start, handed: s.start, sent: time.Now(),
	}
	s.received.Store(uint64(s.start))
	s.serverEnd.Store(uint64(max(s.start, known.WALEnd)))
	return s
}

// startCopy sends START_REPLICATION and waits for the copy to begin.
func (s *Stream) startCopy(ctx context.Context) error {
	forget := context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })
	err := s.requestCopy()
	if !forget() {
		return postgres.Classify("start replication", context.Cause(ctx))
	}
	return postgres.Classify("start replication", err)
}

func (s *Stream) startQuery() ([]byte, error) {
	return (&pgproto3.Query{String: startCommand(s.cfg.Slot, s.cfg.Publication, s.binary, len(s.cfg.Messages) > 0)}).Encode(nil)
}

func (s *Stream) requestCopy() error {
	query, err := s.startQuery()
	if err != nil {
		return err
	}
	if _, err := s.conn.Write(query); err != nil {
		return err
	}
	for {
		kind, body, ok, err := s.frames.next()
		switch {
		case err != nil:
			return s.violation(err)
		case !ok:
			if _, err := s.frames.readMore(); err != nil {
				return err
			}
		case kind == 'W':
			return nil
		case kind == 'E':
			var e pgproto3.ErrorResponse
			if err := e.Decode(body); err != nil {
				return s.violation(err)
			}
			return pgconn.ErrorResponseToPgError(&e)
		case kind == 'N' || kind == 'S' || kind == 'A':
		default:
			return s.violation(fmt.Errorf("message type %q where the copy should begin", kind))
		}
	}
}

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
