package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
)

// session is one connection's life. Goroutine A, the reader, runs the source; goroutine B,
// the deliverer and caller of run, owns everything else except what is marked.
type session struct {
	r       *Relay
	src     Source
	history wal.Origin // of src
	sink    sink.Sink
	tracker *checkpoint.Tracker

	delivery delivery
	intent   *intent // nil without a ledger

	start  sessionStart
	intake intake
	taken  taken
	sends  sends
	bounds bounds
	shown  shown

	interrupts chan error    // why the session has to end, from any goroutine
	frozen     atomic.Uint64 // not zero: nothing beyond may be confirmed any more
	told       atomic.Uint64 // what A last reported, or is about to
	asked      atomic.Int64  // the instant at which A last asked
	stopping   time.Time     // since when the probe is told that the server stops; the probe's alone
	together   bool          // errTogether holds beside the error of the session
}

// sessionStart is what holds where a session begins.
type sessionStart struct {
	began   wal.LSN // the slot's position
	sameWAL wal.LSN // Config.Delivered holds before it
	standby bool    // somebody else had the slot just before
}

// intake is what A brings.
type intake struct {
	out     chan *wal.Batch // A sends, closes at its end
	lost    chan struct{}   // closed by A before out when the source failed
	srcErr  error           // written by A before it closes out
	settled chan struct{}   // closed by B when it is done with everything it took
}

// taken is what B knows of the batches that it took.
type taken struct {
	open   bool           // the last one ends inside a transaction
	behind bool           // the last one was of a backlog
	last   deadletter.Row // of all
	held   []*flight      // of the transaction whose commit was not read yet, with position headers
}

// sends are the Sends that are not done with.
type sends struct {
	outstanding atomic.Int64  // Sends whose done has not been called
	wake        chan struct{} // one token: a Send failed, or none is outstanding
	stumbled    atomic.Bool   // a heartbeat failed, and the sink halted with it
	beating     atomic.Bool   // heartbeats are not answered
	pieces      uint64        // count of Sends, the order for failed
	buffers     sync.Pool     // of *record.Buffer

	mu     sync.Mutex
	failed []failedPiece // guarded by mu; in no order
}

// bounds end what waits for the brokers.
type bounds struct {
	sending    context.Context // ends when waiting for room is pointless
	endSending context.CancelFunc
	judging    context.Context // ends with an interrupt, and with the slot
	endJudging context.CancelFunc
}

// shown is what Status reads, from any goroutine.
type shown struct {
	toldAt   atomic.Int64 // when told moved
	newest   atomic.Int64 // commit time of the last row that was taken; zero: none was
	newestAt atomic.Int64 // the instant at which it was
	full     atomic.Int64 // the instant since which the window is full; zero: it is not
	waits    atomic.Int64 // since when Send waits for the brokers, likewise
	acked    atomic.Int64 // records of unfinished flights that are durable
	repeats  atomic.Int64 // of them, those behind what may be confirmed
}

func newSession(r *Relay, src Source) *session {
	s := &session{
		r: r, src: src, history: src.Origin(), sink: r.sink,
		tracker:    checkpoint.New(src.Start(), r.cfg.MaxInFlightBytes),
		start:      sessionStart{src.Start(), r.deliveredBelow(src.Origin()), r.standby},
		intake:     intake{out: make(chan *wal.Batch, 2), lost: make(chan struct{}), settled: make(chan struct{})},
		interrupts: make(chan error, 1),
	}
	s.sends.wake = make(chan struct{}, 1)
	s.told.Store(uint64(src.Start()))
	s.asked.Store(instant(time.Now()))
	s.sends.buffers.New = func() any { return new(record.Buffer) }
	return s
}

// run streams until the source ends, and returns nil only when everything that
// was read is delivered and confirmed.
func (s *session) run(ctx, hard context.Context) error {
	intake, endIntake := context.WithCancelCause(ctx)
	defer endIntake(nil)
	s.bounds.sending, s.bounds.endSending = context.WithCancel(hard)
	defer s.bounds.endSending()
	s.bounds.judging, s.bounds.endJudging = context.WithCancel(hard)
	defer s.bounds.endJudging()
	s.r.began.Store(true)
	s.r.show(s)
	defer s.r.show(nil)
	s.r.board.SetState(status.Streaming, "", "") // shown as blocked while an obstacle is ahead
	if s.r.ev.SessionStarted != nil {
		s.r.ev.SessionStarted(s.src.Start())
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		s.intake.srcErr = s.src.Run(intake, s.intake.out, s.confirmed)
		if s.intake.srcErr != nil && !s.lingers() {
			s.lose(gone(s.intake.srcErr))
		}
		close(s.intake.out)
		switch {
		case s.intake.srcErr == nil:
			s.guard()
		case s.lingers():
			s.linger()
		}
	})
	keeping, endKeeping := context.WithCancel(hard)
	defer endKeeping()
	var keeper sync.WaitGroup
	if s.intent != nil {
		keeper.Go(func() { s.intent.keep(keeping, s) })
	}
	err := s.deliver(ctx, hard, endIntake)
	close(s.intake.settled)
	endKeeping()
	keeper.Wait()
	s.src.Abort()
	for b := range s.intake.out { // what A still had is unconfirmed and will be read again
		s.r.board.Read(b)
		b.Release()
	}
	reading.Wait() // it may halt the sink, which close resumes
	err = s.close(ctx, hard, s.outcome(err))
	if s.r.ev.SessionEnded != nil {
		s.r.ev.SessionEnded(err)
	}
	return err
}

// errLost ends a drain whose connection is lost. Why it is, the stream says at Close.
var errLost = errors.New("the connection to the server was lost while records were not acknowledged")

// guard interrupts a drain whose connection is lost: who stands by may have the slot
// already.
func (s *session) guard() {
	select {
	case <-s.src.Lost():
		s.interrupt(&fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "drain", Err: errLost})
	case <-s.intake.settled:
	}
}

// lingers says that the stream ended at a row that cannot be read. Then what was read
// before it is delivered first: no later session would come further, and who acts on the
// error gives up all that is not. What is fenced is delivered so at the end (delivery.unreadable).
func (s *session) lingers() bool { return !s.delivery.rules().fenced && unreadable(s.intake.srcErr) }

// linger lets B settle for as long as the slot is held, and for endGrace where the server
// let go of it with the error.
func (s *session) linger() {
	lost := s.src.Lost()
	var over <-chan time.Time
	select {
	case <-lost:
		lost, over = nil, time.After(endGrace)
	default:
	}
	select {
	case <-lost:
	case <-over:
	case <-s.intake.settled:
		return
	}
	s.lose(true)
}

// lose tells B that the source failed.
func (s *session) lose(gone bool) {
	close(s.intake.lost)
	if gone { // after lost, or B would take it for a failure and resume
		s.sink.Halt()
		s.bounds.endJudging() // it would shut out who has the slot by now
	}
	s.bounds.endSending()
}

// errStopped ends a session that was asked to stop while it could not deliver.
// What it held was refused by the brokers or the router and is not in flight.
var errStopped = errors.New("stopped while blocked")

// outcome picks the error that explains the end of the session.
func (s *session) outcome(err error) error {
	switch {
	case errors.Is(err, errStopped):
		return nil
	case err != nil:
		return err
	}
	return s.intake.srcErr
}

// farewell is how long the server may take to be told the final position.
const farewell = 5 * time.Second

// close tells the server the final position and frees the connection. What the sink
// still holds is given up before: two sessions never overlap. After a
// stop it returns ErrDrainCut if rows that the sink was given are not both durable
// and confirmed, or are a part of a transaction that will be sent again.
func (s *session) close(ctx, hard context.Context, cause error) error {
	fenced := s.delivery.rules().fenced
	stopping := fenced && cause != nil && postgres.Reason(cause) == fault.ReasonServerShutdown
	switch {
	case errors.Is(cause, ErrDrainCut), silence(cause):
	case gone(cause) && !fenced:
		s.sink.Halt() // again, as B may have resumed it meanwhile
		s.await(hard, lossGrace)
	default:
		limit := s.r.handover()
		if stopping {
			limit = lossGrace
		}
		within, cancel := context.WithTimeout(hard, limit) // the search for the guilty as well
		defer cancel()
		s.delivery.finish()
		s.await(within, limit)
		if unreadable(cause) {
			cause = s.delivery.unreadable(ctx, within, cause)
		}
	}
	cut := s.sends.outstanding.Load() > 0
	s.delivery.ended(cause)
	switch {
	case !cut:
		s.sink.Resume()
	case stopping: // the server does not wait for the brokers
		defer s.r.dropSink()
	case ctx.Err() == nil:
		s.r.abandon()
	default:
		s.r.dropSink()
	}
	s.intent.settle(hard, s, cause)
	acked := uint64(s.tracker.Confirmed())
	untold := s.intent.limit(acked) < acked
	if f := s.frozen.Load(); f != 0 && s.delivery.rules().repeats {
		untold = untold || f < acked
	}
	final, cancel := context.WithTimeout(context.WithoutCancel(hard), farewell)
	defer cancel()
	closed := s.src.Close(final, s.confirmed())
	if closed != nil && cause == nil {
		s.r.log.Warn().Err(closed).Msg("close stream; the last transactions may be sent again")
	}
	cut = cut || untold || closed != nil && s.mayRepeat() || cause != nil && s.taken.open || gone(cause) && s.tracker.Stats().Rows > 0
	lost := errors.Is(cause, errLost)
	if lost && closed != nil {
		cause = fmt.Errorf("%w: %w", cause, closed)
	}
	drifted := cause != nil && postgres.KindOf(cause) == fault.KindDrift
	switch {
	case cause != nil && ctx.Err() == nil, !cut && !drifted:
		return cause
	case lost, cut && drifted:
		return fmt.Errorf("%w: %w", ErrDrainCut, cause)
	case drifted:
		return fmt.Errorf("%w: %w", errUnseen, cause)
	}
	return ErrDrainCut
}

// mayRepeat reports whether the server is not known to have a position behind the last row. What
// was written to the socket it may never have read.
func (s *session) mayRepeat() bool {
	return s.taken.last.Commit >= max(s.start.began, s.r.board.SlotAt(wal.LSN(s.told.Load())))
}

// errUnseen ends a drain whose rows are all delivered, and which came upon a change that
// the next start does not see.
var errUnseen = errors.New("the publication or a table changed during the drain")

// silence says that the session ended because the server was not heard: it may
// have given the slot to somebody else by now.
func silence(err error) bool {
	return postgres.Reason(err) == fault.ReasonTimeout
}

// gone says that the connection is lost, and with it the slot: a relay that stands by
// may have it already.
func gone(err error) bool { return err != nil && postgres.KindOf(err) == fault.KindRetry }

// Between two relays the order of a key is a matter of time. A relay that lost its
// connection writes nothing new from the moment it knows: a quarter of a second at most
// after the server closed it, and before the server lets go of the slot where the
// network is lost without a word (on Linux; elsewhere it knows when it reads). What it
// had written before is answered within lossGrace, or its connections to the brokers are
// reset, which takes back what the kernel has not delivered. A relay that stood
// by while another one had the slot sends nothing for standbyGrace after it got it,
// which is longer than both together. What is slower than that: a process or a machine
// that does not run, a broker that has the request and handles it late, and whatever
// buffers in between. One relay, whose next session has the same producer id, needs no
// time (abandon).
//
// A server that ends the copy at a row that cannot be read lets go of the slot as well,
// and every session ends there. What lies before the row comes with it, and is written
// for endGrace: else no session would deliver it.
const (
	endGrace     = 150 * time.Millisecond
	lossGrace    = 600 * time.Millisecond
	standbyGrace = time.Second
)

// giveWay waits until nothing of the relay that had the slot before is on its way any
// more. The server is answered meanwhile.
func (s *session) giveWay(hard context.Context) error {
	if !s.start.standby || s.delivery.rules().fenced {
		return nil
	}
	t := time.NewTimer(standbyGrace)
	defer t.Stop()
	select {
	case <-t.C:
		s.r.standby = false
		return nil
	case <-s.intake.lost:
		return s.intake.srcErr
	case err := <-s.interrupts:
		return err
	case <-hard.Done():
		return s.cut()
	}
}

// handover is how long a session that ends with its connection intact waits for its
// acknowledgements before it gives the sink up. It stays below wal_sender_timeout, after which another
// relay may hold the slot.
func (r *Relay) handover() time.Duration {
	limit := 10 * time.Second
	if t := r.cfg.Replication.WalSenderTimeout; t > 0 {
		limit = min(limit, t/2)
	}
	return limit
}

// await waits until no Send is outstanding, and for a moment only when the connection
// goes meanwhile.
func (s *session) await(hard context.Context, limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	lost := s.src.Lost()
	if s.delivery.rules().fenced {
		lost = nil
	}
	for s.sends.outstanding.Load() > 0 {
		select {
		case <-s.sends.wake:
		case <-lost:
			lost = nil
			s.sink.Halt()
			t.Reset(min(limit, lossGrace))
		case <-t.C:
			return
		case <-hard.Done():
			return
		}
	}
}

// confirmed is what A reports. The tracker decides; a frozen session reports
// nothing new.
func (s *session) confirmed() wal.LSN {
	lsn := uint64(s.tracker.Confirmed())
	if f := s.frozen.Load(); f != 0 {
		lsn = min(lsn, f)
	}
	lsn = s.intent.limit(s.delivery.limit(lsn))
	now := time.Now()
	s.asked.Store(instant(now))
	if s.told.Swap(lsn) != lsn {
		s.shown.toldAt.Store(now.UnixNano())
		s.tracker.Told(wal.LSN(lsn))
	}
	return wal.LSN(lsn)
}

// deliver takes batches until A closes the channel, then settles.
func (s *session) deliver(ctx, hard context.Context, endIntake context.CancelCauseFunc) error {
	if err := s.giveWay(hard); err != nil {
		endIntake(err)
		return err
	}
	s.fill(false) // the sink may have another session's
	heart, stop := s.heart()
	defer stop()
	renewal, end := s.delivery.renewal()
	defer end()
	for {
		select {
		case now := <-heart:
			s.beat(now)
		case <-renewal:
			s.delivery.renew()
		case b, open := <-s.intake.out:
			if !open {
				return s.settle(ctx, hard)
			}
			if err := s.take(ctx, hard, b); err != nil {
				return err
			}
		case <-s.sends.wake:
			if err := s.delivery.recover(ctx, hard); err != nil {
				return err
			}
		case err := <-s.interrupts:
			endIntake(err)
			return err
		case <-hard.Done():
			return s.cut()
		}
	}
}

// settle waits, after intake ended, for what was handed over.
func (s *session) settle(ctx, hard context.Context) error {
	if s.intake.srcErr != nil && !s.lingers() {
		return nil // the connection is gone: outcome reports it, close waits a while
	}
	s.delivery.finish()
	for s.sends.outstanding.Load() > 0 || s.hasFailed() {
		select {
		case <-s.sends.wake:
			if err := s.delivery.recover(ctx, hard); err != nil {
				return err
			}
		case err := <-s.interrupts: // a drain is no reason to write on without the slot
			return err
		case <-s.intake.lost:
			return nil
		case <-hard.Done():
			return s.cut()
		}
	}
	if len(s.taken.held) > 0 {
		return s.unfinished()
	}
	return nil
}

// cut is the end of a drain that took too long.
func (s *session) cut() error {
	if s.sends.outstanding.Load() == 0 && s.tracker.Stats().Rows == 0 && !s.taken.open {
		return errStopped
	}
	return ErrDrainCut
}

// take routes a batch, waits for room, and hands the records to the sink.
func (s *session) take(ctx, hard context.Context, b *wal.Batch) error {
	if s.r.ev.BatchReceived != nil {
		s.r.ev.BatchReceived(b)
	}
	s.r.board.Read(b)
	if b.Closes != 0 {
		s.sendHeld(b.Closes)
	}
	s.taken.open = b.Open
	if b.Backlog != s.taken.behind {
		s.fill(b.Backlog)
	}
	s.r.notice(time.Now())
	entry := checkpoint.Entry{Rows: len(b.Rows), Open: openRows(b), Through: b.Through}
	if len(b.Rows) == 0 {
		s.tracker.Track(entry)
		s.delivery.pass(b.Through)
		b.Release()
		return nil
	}
	f := &flight{s: s, batch: b, buf: s.sends.buffers.Get().(*record.Buffer), read: time.Now()}
	entry.First, entry.Last = f.commitOf(0), f.commitOf(len(b.Rows)-1)
	f.pending.Store(1)
	f.buf.Reserve(len(b.Rows))
	rejection := s.route(f)
	s.follow(f, f.buf.Records)

	entry.Bytes, entry.Read = b.Bytes+f.buf.Size()+kafka.Memory(f.buf.Records), f.read
	if err := s.admit(ctx, hard, f, entry); err != nil {
		return err
	}
	s.taken.last = deadletter.RowOf(&b.Rows[len(b.Rows)-1]) // not before the tracker has them
	s.shown.newest.Store(entry.Last.Time.UnixNano())
	s.shown.newestAt.Store(instant(f.read))
	if rejection == nil {
		s.delivery.send(f)
	} else if err := s.delivery.rejected(ctx, hard, f, rejection); err != nil {
		return err
	}
	if f.sent < len(f.buf.Records) {
		s.keep(f)
		return nil
	}
	f.finish()
	return nil
}

// fill tells the sink when a backlog begins and ends.
func (s *session) fill(behind bool) {
	s.taken.behind = behind
	if f, ok := s.sink.(sink.Filler); ok {
		f.Backlog(behind)
	}
}

// route turns rows into records up to the first that cannot be and is not set
// aside.
func (s *session) route(f *flight) error {
	for f.routed < len(f.batch.Rows) {
		row := &f.batch.Rows[f.routed]
		if s.delivery.covers(row) || s.delivered(row) || s.r.part.covers(row) {
			s.r.parts.Router.Pass(f.buf, row)
			f.routed++
			continue
		}
		n := len(f.buf.Records)
		err := s.r.parts.Router.Route(f.buf, row)
		if err == nil {
			err = s.keepOut(f, n)
		}
		if err == nil {
			err = s.delivery.replace(f, n, row)
		}
		if err != nil {
			if err = s.setAside(f, row, err); err != nil {
				return err
			}
		}
		f.routed++
	}
	return nil
}

// admit waits for room in the window, which is the only limit of what is in flight, and so
// the only place that waits because of memory:
//
//   - before it, the reader hands over one batch and the channel holds two, each of
//     MaxBatchBytes and a row at most;
//   - behind it, the sink takes whatever it is sent. The client has no limit in bytes, and
//     one in records that no memory reaches (kgo.MaxBufferedRecords in sink/kafka). Send
//     waits for a topic to be loaded or a partition to be woken, whatever is in flight;
//   - what is sent without an entry of its own takes the place of records that have one
//     (tries, dead letters), or is one set of heartbeats at a time.
func (s *session) admit(ctx, hard context.Context, f *flight, e checkpoint.Entry) error {
	defer s.shown.full.Store(0)
	for {
		ticket, ok := s.tracker.Track(e)
		if ok {
			f.ticket = ticket
			return nil
		}
		s.shown.full.CompareAndSwap(0, instant(time.Now()))
		s.delivery.makeRoom()
		if len(s.taken.held) > 0 && s.sends.outstanding.Load() == 0 && !s.hasFailed() {
			return s.readThrough(ctx, hard)
		}
		select {
		case <-s.tracker.Room():
		case <-s.sends.wake:
			if err := s.delivery.recover(ctx, hard); err != nil {
				return err
			}
		case err := <-s.interrupts:
			return err
		case <-s.intake.lost:
			return s.intake.srcErr
		case <-hard.Done():
			return s.cut()
		}
	}
}
