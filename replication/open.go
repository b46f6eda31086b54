package replication

import (
	"cmp"
	"context"
	"crypto/tls"
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
	if err := checkStart(known, cfg.Slot); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		return nil, postgres.Classify("take over connection", err)
	}
	if !opt.Quiet {
		for _, warning := range known.Warnings {
			logger.Warn().Msg(warning)
		}
	}
	s := newStream(cfg, opt, logger, hijacked.Conn, known)
	s.process = int(hijacked.PID)
	if err := s.startCopy(ctx); err != nil {
		_ = s.conn.Close()
		return nil, err
	}
	return s, nil
}

// checkStart refuses a position of the slot from which not every row is sent.
func checkStart(known *catalog.Catalog, slot string) error {
	switch {
	case known.Confirmed == 0:
		return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonSlotUnusable, Op: "start replication", Subject: postgres.SlotSubject(slot),
			Err: errors.New("the slot has no confirmed position"), Hint: "it was not created completely: drop it and run `cdc-relay setup`"}
	case known.Confirmed > known.Flushed: // a walsender sends no more than is flushed, so nobody was sent that
		return &fault.Error{Kind: fault.KindDrift, Reason: fault.ReasonSlotMoved, Op: "start replication", Subject: postgres.SlotSubject(slot),
			Err: fmt.Errorf("the slot is confirmed up to %s, and the server's WAL ends at %s: it would never send the rows that commit in between", known.Confirmed, known.Flushed),
			Hint: "the server lost WAL, or somebody confirmed what was not there. Stop the relay, then `cdc-relay teardown --yes`, `cdc-relay setup`, `cdc-relay run`. Rows that were written since then are not sent: " +
				"`cdc-relay audit` says which, and `cdc-relay replay` sends them"}
	}
	return nil
}

func newStream(cfg postgres.Config, opt Options, logger zerolog.Logger, conn net.Conn, known *catalog.Catalog) *Stream {
	opt = opt.withDefaults(known.SenderTimeout)
	s := &Stream{
		cfg: cfg, opt: opt, log: logger, conn: conn, notices: make(notices),
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
		StartLSN: s.start, WALEnd: known.WALEnd, // the first keep-alive repeats StartLSN
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
	s.serverEnd.Store(uint64(max(s.start, known.WALEnd, known.Flushed)))
	return s
}

// startCopy sends START_REPLICATION and waits for the copy to begin.
func (s *Stream) startCopy(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })
	err := s.requestCopy()
	if !stop() {
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
