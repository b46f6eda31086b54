package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
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

// ErrAborted is what Run returns after Abort.
var ErrAborted error = &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonCancelled, Op: "stream from slot", Err: errors.New("aborted")}

// Stream owns one replication connection: it reads, decodes, hands on batches and reports the
// confirmed position to the server.
//
//  1. One goroutine owns the connection at any time: Run's, then the one that reports
//     positions until Close, then Close's.
//  2. Only positions that confirmed returned or that Close was given are reported to the server,
//     and none beyond what was handed out.
//  3. Run is called once at most, and ends before Close, which may be called again; all other
//     methods from any goroutine at any time.
type Stream struct {
	cfg     postgres.Config
	opt     Options
	log     zerolog.Logger
	conn    net.Conn
	frames  *frames
	dec     *pgoutput.Decoder
	status  status
	pace    socket.Pace
	notices notices

	process int // of the server, for this connection
	start   wal.LSN
	origin  wal.Origin
	tables  []*wal.Relation
	catalog *catalog.Describer // nil when no table asks for its columns' metadata
	binary  bool

	received, serverEnd atomic.Uint64 // written by the owner, read by anybody

	stopping atomic.Bool // intake ended
	reached  bool        // Options.Until: nothing before it is still to come
	abort    chan struct{}
	aborting sync.Once

	patience time.Duration // how long nobody may take rows before readOn begins
	readOnAt time.Time     // when readOn read last
	readPast bool          // rows were dropped: nothing more of this stream is decoded

	unacknowledged func() int // bytes of our messages that the server's kernel has not acknowledged

	heard    atomic.Int64 // instant of the last byte from the server; zero while Run does not listen
	deadline time.Time    // of reads, as the connection has it
	closed   bool
	broken   error // why the stream cannot go on; nothing more is confirmed, unless released
	abrupt   bool  // broken, and what was decoded is not handed on: the next session reads it
	released bool  // broken by a row that the server cannot send: the slot is free, the connection works
	ended    bool  // the server ended the copy; the connection closes next

	endReports, reportsEnded chan struct{} // ends reportUntilClose, and shows that it ended; nil when Run left none
	lost                     chan struct{} // closed when reportUntilClose finds the connection gone, or Run broke it
}

// StartLSN is the slot's confirmed position when the stream was opened, never zero:
// everything that commits at or after it will be sent.
func (s *Stream) StartLSN() wal.LSN { return s.start }

// ServerProcess is the server's process that streams to us.
func (s *Stream) ServerProcess() int { return s.process }

// Tables are the configured tables as the catalog had them at Open, indexed like
// postgres.Config.Tables.
func (s *Stream) Tables() []*wal.Relation { return s.tables }

// Origin is where the positions of this stream mean something.
func (s *Stream) Origin() wal.Origin { return s.origin }

// Binary reports whether values come in binary format where their type has one.
func (s *Stream) Binary() bool { return s.binary }

// Received is the highest position read so far.
func (s *Stream) Received() wal.LSN { return wal.LSN(s.received.Load()) }

// ServerEnd is the highest position that the server has named. Before Run it is the end of the WAL, read
// while nobody had the slot.
func (s *Stream) ServerEnd() wal.LSN { return wal.LSN(s.serverEnd.Load()) }

// Silent is how long the server has sent nothing, although it is asked for a reply every
// StatusInterval. It is zero while Run waits for room in out, and before and after Run.
func (s *Stream) Silent() time.Duration {
	at := s.heard.Load()
	if at == 0 {
		return 0
	}
	return time.Duration(instant(time.Now()) - at)
}

// Lost is closed when the slot is lost after Run returned, because the connection is gone or the
// server ended the copy with an error. Another relay may have the slot while the consumer still
// waits for acknowledgements.
func (s *Stream) Lost() <-chan struct{} { return s.lost }

// Abort makes Run return at once, also from inside a transaction or while nobody
// takes its batch. The next session reads again what was not handed out.
func (s *Stream) Abort() {
	s.aborting.Do(func() {
		close(s.abort)
		s.wake()
	})
}

// wake ends a read that is waiting.
func (s *Stream) wake() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) }

// Run reads until intake ends or the stream fails, and sends batches in order. It
// never closes out, and keeps answering the server while out is full.
//
// When intake ends it reads to the commit of the current transaction, sends it, and returns
// nil. An error that leaves the connection usable (a message
// that cannot be decoded, a table that changed) comes after the rows before it.
// Then confirmed is reported to the server until Close, unless Lost is closed.
func (s *Stream) Run(intake context.Context, out chan<- *wal.Batch, confirmed func() wal.LSN) error {
	s.status.confirmed = confirmed
	s.heard.Store(instant(time.Now()))
	woken := make(chan struct{})
	stop := context.AfterFunc(intake, func() {
		defer close(woken)
		s.stopping.Store(true)
		s.wake()
	})
	err := s.read(out)
	s.heard.Store(0)
	if !stop() {
		<-woken // its deadline must not hit Close
	}
	if s.broken != nil {
		close(s.lost)
	} else {
		s.endReports, s.reportsEnded = make(chan struct{}), make(chan struct{})
		go s.reportUntilClose()
	}
	return err
}

func (s *Stream) read(out chan<- *wal.Batch) error {
	for {
		done, err := s.consume(out)
		if s.abrupt || errors.Is(err, ErrAborted) {
			return err // the next session reads again what is not confirmed: handing it on now would repeat it
		}
		if flushErr := s.flush(out); err == nil {
			err = flushErr
		}
		if err != nil || done {
			return err
		}
		if err := s.receive(); err != nil {
			return err
		}
	}
}

// consume handles every complete message in the buffer, or fewer when the stream
// is to stop: then nothing after the commit in hand is touched.
func (s *Stream) consume(out chan<- *wal.Batch) (done bool, err error) {
	for {
		if (s.reached || s.stopping.Load()) && !s.dec.InTransaction() {
			return true, nil
		}
		if s.readPast {
			return false, s.errReadPast()
		}
		kind, body, ok, err := s.frames.next()
		if errors.Is(err, errOversized) {
			if ok, err := s.oversized(); err != nil || !ok {
				return false, err
			}
			continue
		}
		if err != nil {
			return false, s.violation(err)
		}
		if !ok {
			return false, nil
		}
		if err := s.message(kind, body); err != nil {
			return false, err
		}
		if s.dec.Full() {
			if err := s.flush(out); err != nil {
				return false, err
			}
		}
	}
}

// receive waits for bytes, and sends the status when it is due meanwhile.
func (s *Stream) receive() error {
	s.pace.Committed(s.dec.CommitMicros())
	now := time.Now()
	if err := s.tick(now); err != nil {
		return err
	}
	// An earlier deadline than needed only wakes us early, so a busy stream does
	// not set one for every read.
	if due := s.status.due(); s.deadline.After(due) || !s.deadline.After(now) {
		s.deadline = due
		if err := s.conn.SetReadDeadline(due); err != nil {
			return s.fail("read from server", err)
		}
		// Whoever wakes this goroutine sets a flag first, then a deadline. If no flag is
		// set by now, that deadline will come after ours and replace it.
		if s.interrupted() {
			s.deadline = time.Time{}
			return s.abortedErr()
		}
	}
	n, err := s.frames.readMore()
	if n > 0 {
		s.heard.Store(instant(time.Now()))
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.deadline = time.Time{}
		return s.silence(time.Now())
	}
	return s.fail("read from server", err)
}

// interrupted reports that another goroutine may have moved the deadline.
func (s *Stream) interrupted() bool {
	return s.abortedErr() != nil || s.stopping.Load() && !s.dec.InTransaction()
}

func (s *Stream) abortedErr() error {
	select {
	case <-s.abort:
		return ErrAborted
	default:
		return nil
	}
}

func (s *Stream) silence(now time.Time) error {
	if err := s.abortedErr(); err != nil {
		return err
	}
	if quiet := time.Duration(instant(now) - s.heard.Load()); quiet >= s.opt.DeadAfter {
		return s.breakOff(&fault.Error{
			Kind: fault.KindRetry, Reason: fault.ReasonTimeout, Op: "read from server",
			Err: fmt.Errorf("no answer for %s", quiet.Round(time.Second)),
		})
	}
	return s.tick(now)
}

func (s *Stream) tick(now time.Time) error {
	return s.statusError(s.status.tick(now, s.Received()))
}

// statusError sorts an error of the status writer.
func (s *Stream) statusError(err error) error {
	var refused *fault.Error
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return s.fail("send status", err)
}

// breakOff ends the connection with err. It closes the connection at once: Close comes only when the
// consumer has its acknowledgements, and a stopping server waits for the connection.
func (s *Stream) breakOff(err error) error {
	s.broken, s.abrupt = err, true
	_ = s.conn.Close()
	return err
}

func (s *Stream) fail(op string, err error) error {
	if s.ended {
		return s.breakOff(errShutdown(op))
	}
	return s.breakOff(postgres.Classify(op, err))
}

func errShutdown(op string) error {
	return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonServerShutdown, Op: op, Err: errors.New("the server ended the stream: it is shutting down")}
}

func (s *Stream) violation(err error) error {
	return s.breakOff(&fault.Error{
		Kind: fault.KindProtocol, Op: "read from server", LSN: s.Received(), Err: err,
		Hint: "the peer may not be PostgreSQL, or a proxy in between may not support replication",
	})
}

// flush hands on what is collected, and the position that keep-alives brought meanwhile.
func (s *Stream) flush(out chan<- *wal.Batch) error {
	for !s.dec.Empty() {
		b := s.dec.Take()
		b.Backlog = s.pace.Backlog()
		s.status.handed = max(s.status.handed, b.Through)
		select {
		case <-s.abort:
			b.Release()
			return ErrAborted
		case out <- b:
		default:
			if err := s.offer(out, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// offer waits for room in out. The server blocks while it is not read, and still reads our
// status messages; a long wait reads on slowly (readOn). A request of the server to stop comes
// after everything unread and may not be seen here: whoever learns of it elsewhere calls Abort.
func (s *Stream) offer(out chan<- *wal.Batch, b *wal.Batch) error {
	s.heard.Store(0)
	began := time.Now()
	// Counted from the last write and not from here: offers may all be short.
	timer := time.NewTimer(time.Until(s.status.lastWrite.Add(resendInterval)))
	defer timer.Stop()
	for {
		select {
		case out <- b:
			s.heard.Store(instant(time.Now()))
			return nil
		case <-s.abort:
			b.Release()
			return ErrAborted
		case <-timer.C:
			if err := s.tickUnread(time.Now(), began); err != nil {
				b.Release()
				return err
			}
			timer.Reset(resendInterval)
		}
	}
}

// tickUnread keeps the connection alive while nobody takes its rows: it sends the status that is due,
// or repeats the last one to find out whether the server is still there. If it is not, another relay
// may soon have the slot.
func (s *Stream) tickUnread(now, since time.Time) error {
	before := s.status.sent
	if err := s.tick(now); err != nil {
		return err
	}
	if s.status.sent.Equal(before) {
		if err := s.statusError(s.status.resend(now)); err != nil {
			return err
		}
	}
	return s.readOn(now, since)
}

// message handles one protocol message of the copy.
func (s *Stream) message(kind byte, body []byte) error {
	switch kind {
	case 'd':
		return s.data(body)
	case 'N':
		return s.notice(body)
	case 'E':
		return s.serverError(body)
	case 'S', 'A', 'Z': // parameter status, notification, ready
		return nil
	case 'c', 'C':
		// A stopping server says only CommandComplete and closes.
		s.ended = true
		return nil
	}
	return s.violation(fmt.Errorf("message type %q", kind))
}

const (
	walHeader     = 1 + 8 + 8 + 8
	keepAliveSize = 1 + 8 + 8 + 1
)

func (s *Stream) data(body []byte) error {
	switch {
	case len(body) >= walHeader && body[0] == 'w':
		return s.wal(body)
	case len(body) == keepAliveSize && body[0] == 'k':
		return s.keepAlive(wal.LSN(binary.BigEndian.Uint64(body[1:])), body[17] != 0)
	}
	return s.violation(fmt.Errorf("copy data of %d bytes", len(body)))
}

func (s *Stream) wal(body []byte) error {
	if s.opt.Until != 0 && !s.dec.InTransaction() && pgoutput.CommitsAt(body[walHeader:]) >= s.opt.Until {
		s.reached = true
		return nil
	}
	if err := s.dec.Decode(body[walHeader:], wal.LSN(binary.BigEndian.Uint64(body[1:]))); err != nil {
		return err
	}
	s.sawWAL(body)
	return nil
}

// sawWAL takes the positions and the time from the header of a WAL message. It reads one byte
// after the header.
func (s *Stream) sawWAL(body []byte) {
	// Both positions are zero on relations and types; max ignores that.
	start := wal.LSN(binary.BigEndian.Uint64(body[1:]))
	s.pace.Sent(int64(binary.BigEndian.Uint64(body[17:])))
	s.status.repeats = 0
	if body[walHeader] == 'C' {
		start = s.dec.Through()
	}
	s.notePositions(start, wal.LSN(binary.BigEndian.Uint64(body[9:])))
}

// notePositions raises Received and ServerEnd. There is one writer.
func (s *Stream) notePositions(received, serverEnd wal.LSN) {
	if uint64(received) > s.received.Load() {
		s.received.Store(uint64(received))
	}
	if serverEnd = max(received, serverEnd); uint64(serverEnd) > s.serverEnd.Load() {
		s.serverEnd.Store(uint64(serverEnd))
	}
}

func (s *Stream) keepAlive(serverEnd wal.LSN, ask bool) error {
	s.idle(serverEnd)
	s.notePositions(serverEnd, serverEnd)
	now := time.Now()
	if s.status.keepAlive(now, serverEnd, ask) >= s.opt.ShutdownGrace {
		return s.breakOff(&fault.Error{
			Kind: fault.KindRetry, Reason: fault.ReasonServerShutdown, Op: "wait for delivery",
			LSN: s.status.flush, Err: fmt.Errorf("the server has been stopping for %s and waits for rows up to %s",
				s.opt.ShutdownGrace, s.status.handed),
			Hint: "the relay closes the connection so that PostgreSQL can stop; the rows stay in the slot; before version 17 a switchover loses the slot",
		})
	}
	if !ask {
		return nil
	}
	return s.statusError(s.status.reply(now, s.Received()))
}

// idle has the decoder take a keep-alive's position, up to Options.Until.
func (s *Stream) idle(serverEnd wal.LSN) {
	if until := s.opt.Until; until != 0 && serverEnd >= until {
		serverEnd = until
		s.reached = s.reached || !s.dec.InTransaction()
	}
	s.dec.Idle(serverEnd)
}

// notice looks for the notice that means lost rows: from version 18 on the server skips a
// publication that did not exist at a row's position, sends one notice, and continues without the
// rows. Confirming any later keep-alive would lose them.
func (s *Stream) notice(body []byte) error {
	var n pgproto3.NoticeResponse
	if err := n.Decode(body); err != nil {
		return s.violation(err)
	}
	// The text is translated by lc_messages, the routine is not.
	const text = "skipped loading publication"
	if n.Code == "55000" && (n.Routine == "LoadPublications" || len(n.Message) >= len(text) && n.Message[:len(text)] == text) {
		s.status.frozen = true
		return &fault.Error{
			Kind: fault.KindDrift, Reason: fault.ReasonPublicationMissing, Op: "stream from publication", Subject: s.cfg.Publication,
			LSN: s.Received(), Err: errors.New("the publication did not exist when the next rows were written, so the server omits them"),
			Hint: "nothing after this position is confirmed; " + postgres.HintRecreate(fault.ReasonPublicationMissing, s.status.flush),
		}
	}
	left, ok := s.notices.admit(n.Code+" "+n.Message, time.Now())
	if !ok {
		return nil
	}
	line := s.log.Warn().Str("code", n.Code).Str("severity", n.SeverityUnlocalized)
	if left > 0 {
		line = line.Int("left_out", left)
	}
	line.Msg("server notice: " + fault.OneLine(n.Message))
	return nil
}

// serverError ends the stream: the server has left copy mode. If the connection stays up, the
// server met something in the WAL that it cannot send, such as a row that is too large. The rows
// read before it are handed on: no later session would deliver them.
func (s *Stream) serverError(body []byte) error {
	var e pgproto3.ErrorResponse
	if err := e.Decode(body); err != nil {
		return s.violation(err)
	}
	s.broken = postgres.Classify("stream from slot", pgconn.ErrorResponseToPgError(&e))
	if own, ok := errors.AsType[*fault.Error](s.broken); ok {
		switch {
		case own.Reason == fault.ReasonUndecodable && s.dec.InTransaction():
			own.Row = s.dec.RowAhead()
			own.Hint += "; if it cannot be repaired, move the slot past its transaction, committing at " + s.dec.Commit().String()
		case own.Reason == fault.ReasonPublicationMissing:
			own.Hint = postgres.HintUnpublished(s.status.flush)
		}
	}
	s.abrupt = e.SeverityUnlocalized != "ERROR"
	s.released = !s.abrupt && postgres.KindOf(s.broken) == fault.KindProtocol
	return s.broken
}
