package relay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/relay/ending"
	"github.com/cdc-relay/cdc-relay/relay/promise"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
)

// session is one connection's life. Two goroutines share it: the reader runs the source; the
// deliverer, which is the caller of run, owns everything else except what is marked.
type session struct {
	relay   *Relay
	src     Source
	history wal.Origin // of src
	sink    sink.Sink
	tracker *checkpoint.Tracker

	delivery *delivery.Delivery
	promised *promise.Position // nil without a ledger

	start         sessionStart
	intake        intake
	taken         taken
	bounds        bounds
	status.Gauges // Full, Took and ConfirmMoved feed the status

	until wal.LSN // in a drain that goes on: where its reading ends; zero: the stop ends it
	cause error   // what ended it; of a stop, run may return ErrDrainCut instead

	interrupts chan error    // why the session has to end, from any goroutine
	frozen     atomic.Uint64 // not zero: later calls of confirmed return no more than this, or what was reported
	reported   atomic.Uint64 // the highest position that confirmed returned
	lastAsked  status.Moment // when the reader last called confirmed
	stopping   time.Time     // since when the probe sees the server shut down; used only by the probe
}

// sessionStart is what a session begins with.
type sessionStart struct {
	position           wal.LSN // the slot's position
	sameWAL            wal.LSN // Config.AlreadySent holds before it
	waitForPredecessor bool    // records of another producer may be on their way
}

// intake is how the reader hands batches to the deliverer.
type intake struct {
	out     chan *wal.Batch // the reader sends, and closes at its end
	lost    chan struct{}   // closed by the reader when the source failed: at once, or after the rows before the end were waited for (awaitRowsBefore)
	srcErr  error           // written by the reader before it closes out
	emptied chan struct{}   // closed by the deliverer when it is done with every batch it took
}

// taken is the end of the stream that the deliverer has taken.
type taken struct {
	open bool      // the last one ends inside a transaction
	last wal.Place // of all
	read wal.LSN   // the highest position of a batch or a row, taken or not
}

// reads notes how far a batch goes.
func (t *taken) reads(b *wal.Batch) {
	t.read = max(t.read, b.Through)
	if n := len(b.Rows); n > 0 {
		t.read = max(t.read, b.Rows[n-1].Place().Commit)
	}
}

// bounds end the waits for the brokers.
type bounds struct {
	sending      context.Context // ends when waiting for room is pointless
	endSending   context.CancelFunc
	searching    context.Context // ends with an interrupt, and with the slot
	endSearching context.CancelFunc
}

func newSession(r *Relay, src Source) *session {
	s := &session{
		relay: r, src: src, history: src.Origin(), sink: r.sink,
		tracker:    checkpoint.New(src.Start(), r.cfg.MaxInFlightBytes),
		start:      sessionStart{src.Start(), r.alreadySentBelow(src.Origin()), r.waitForPredecessor},
		intake:     intake{out: make(chan *wal.Batch, 2), lost: make(chan struct{}), emptied: make(chan struct{})},
		interrupts: make(chan error, 1),
	}
	s.reported.Store(uint64(src.Start()))
	s.lastAsked.Set(time.Now())
	return s
}

// open makes the delivery.
func (s *session) open(ctx context.Context) (err error) {
	s.delivery, err = s.relay.delivery.Open(ctx, s, delivery.Start{
		Sink: s.sink, Origin: s.history, Position: s.start.position, Tracker: s.tracker, AlreadySent: s.alreadySent,
	})
	return err
}

// run streams until the source ends, and returns nil only when everything that
// was read is delivered and confirmed.
func (s *session) run(ctx, deliveryCtx context.Context) error {
	readUntil := ctx
	if s.until != 0 {
		readUntil = deliveryCtx // a drain that goes on reads although the stop was asked for
	}
	reading, endReading := context.WithCancelCause(readUntil)
	defer endReading(nil)
	if s.until != 0 && s.start.position >= s.until {
		endReading(nil)
	}
	s.bounds.sending, s.bounds.endSending = context.WithCancel(deliveryCtx)
	defer s.bounds.endSending()
	s.bounds.searching, s.bounds.endSearching = context.WithCancel(deliveryCtx)
	defer s.bounds.endSearching()
	s.relay.streamed.Store(true)
	s.relay.show(s)
	defer s.relay.show(nil)
	s.relay.monitor.SetState(status.Streaming, "", "") // shown as blocked while a blocked row is ahead
	if s.relay.ev.SessionStarted != nil {
		s.relay.ev.SessionStarted(s.src.Start())
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		s.intake.srcErr = s.src.Run(reading, s.intake.out, s.confirmed)
		if s.intake.srcErr != nil && !s.endedAlive() {
			s.sourceLost(ending.LostConnection(s.intake.srcErr))
		}
		close(s.intake.out)
		switch {
		case s.intake.srcErr == nil:
			s.watchConnection()
		case s.endedAlive():
			s.awaitRowsBefore()
		}
	})
	raising, endRaising := context.WithCancel(deliveryCtx)
	defer endRaising()
	var raiser sync.WaitGroup
	if s.promised != nil {
		raiser.Go(func() { s.promised.Run(raising, s.tracker.Confirmable, s.interrupt) })
	}
	err := s.deliver(ctx, deliveryCtx, endReading)
	close(s.intake.emptied)
	endRaising()
	raiser.Wait()
	s.src.Abort()
	for b := range s.intake.out { // what the reader still had is unconfirmed and will be read again
		s.relay.monitor.Read(b)
		s.taken.reads(b)
		b.Release()
	}
	reader.Wait() // it may halt the sink, which close resumes
	s.cause = s.outcome(err)
	err = s.close(ctx, deliveryCtx, s.cause)
	if s.relay.ev.SessionEnded != nil {
		s.relay.ev.SessionEnded(err)
	}
	return err
}

// watchConnection interrupts a drain whose connection is lost: a standby may have the slot
// already.
func (s *session) watchConnection() {
	select {
	case <-s.src.Lost():
		s.interrupt(&fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "drain", Err: ending.ErrLost})
	case <-s.intake.emptied:
	}
}

// endedAlive reports that the stream ended with its connection alive, and that the rows before the end
// are delivered first (awaitRowsBefore). The stream had to drop rows, or came to one that cannot be
// read: every later session stops at such a row, and skipping it also skips whatever is undelivered
// before it. With exactly-once it is false: Delivery.Unreadable delivers them at the end, and what
// is not committed is read again.
func (s *session) endedAlive() bool {
	return !s.delivery.Rules().Fenced && (ending.Unreadable(s.intake.srcErr) || ending.ReadPast(s.intake.srcErr))
}

// awaitRowsBefore lets the deliverer finish the rows before the end for as long as the slot is held,
// and for endGrace where the server released the slot with the error.
func (s *session) awaitRowsBefore() {
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
	case <-s.intake.emptied:
		return
	}
	s.sourceLost(true)
}

// sourceLost tells the deliverer that the source failed.
func (s *session) sourceLost(connection bool) {
	close(s.intake.lost)
	if connection { // after lost, or the deliverer would take it for a failure and resume
		s.sink.Halt()
		s.bounds.endSearching() // it would fence the relay that has the slot by now
	}
	s.bounds.endSending()
}

// outcome picks the error that explains the end of the session.
func (s *session) outcome(err error) error {
	switch {
	case errors.Is(err, ending.ErrStopped):
		return nil
	case err != nil:
		return err
	}
	return s.intake.srcErr
}

// closeTimeout is how long the server may take to acknowledge the final position.
const closeTimeout = 5 * time.Second

// close reports the final position to the server and frees the connection. Before that it gives up the
// records that the sink still holds: two sessions never overlap.
func (s *session) close(ctx, deliveryCtx context.Context, cause error) error {
	stopping := s.delivery.Rules().Fenced && cause != nil && postgres.Reason(cause) == fault.ReasonServerShutdown
	cause = s.finish(ctx, deliveryCtx, cause, stopping)
	unanswered := s.delivery.Outstanding()
	s.delivery.Close(cause)
	switch {
	case !unanswered:
		s.sink.Resume(deliveryCtx)
	case stopping: // the server does not wait for the brokers
		defer s.relay.dropSink()
	case ctx.Err() == nil:
		s.relay.abandon()
	default:
		s.relay.dropSink()
	}
	withheld := s.raisePromise(deliveryCtx, cause)
	final, cancel := context.WithTimeout(context.WithoutCancel(deliveryCtx), closeTimeout)
	defer cancel()
	closed := s.src.Close(final, s.confirmed())
	if closed != nil && cause == nil {
		s.relay.log.Warn().Err(closed).Msg("could not close the stream; the last transactions may be sent again")
	}
	end := ending.Session{
		Cause: cause, Stopped: ctx.Err() != nil,
		Unanswered: unanswered, Rows: s.tracker.Stats().Rows, Open: s.taken.open, Repeats: s.delivery.Rules().Repeats,
		Withheld: withheld, CloseFailed: closed, LastUnknown: s.lastUnknown(),
	}
	return end.Err()
}

// finish waits for what is in flight, as long as the cause allows. It returns the cause, or what
// was found while the rows before an unreadable one were delivered.
func (s *session) finish(ctx, deliveryCtx context.Context, cause error, stopping bool) error {
	switch {
	case errors.Is(cause, ErrDrainCut), ending.ServerSilent(cause):
		// No wait: the time for it is over, or another relay may have the slot.
	case ending.LostConnection(cause) && !s.delivery.Rules().Fenced:
		s.sink.Halt() // again, as the deliverer may have resumed it meanwhile
		s.await(deliveryCtx, lossGrace)
	default:
		limit := s.relay.cfg.handover()
		if stopping {
			limit = lossGrace
		}
		within, cancel := context.WithTimeout(deliveryCtx, limit) // the search for rejected records as well
		defer cancel()
		s.delivery.Finish()
		s.await(within, limit)
		if ending.Unreadable(cause) {
			cause = s.delivery.Unreadable(ctx, within, cause)
		}
	}
	return cause
}

// raisePromise raises the promised position to the tracker's, and reports whether the server will
// not get the tracker's position.
func (s *session) raisePromise(deliveryCtx context.Context, cause error) (withheld bool) {
	if !ending.LostConnection(cause) { // else the server cannot be reached any more
		_ = s.promised.Raise(deliveryCtx, s.tracker.Confirmable()) // it logs the error; rows that are not confirmed are sent again
	}
	acked := s.tracker.Confirmable()
	withheld = s.promised.Limit(acked) < acked
	if f := wal.LSN(s.frozen.Load()); f != 0 && s.delivery.Rules().Repeats {
		withheld = withheld || f < acked
	}
	return withheld
}

// lastUnknown reports whether the server may lack the position after the last row: it may never have
// read what was written to the socket, and neither the slot's position at the start nor the probe's
// last look at it is beyond the row's commit.
func (s *session) lastUnknown() bool {
	return s.taken.last.Commit >= max(s.start.position, s.relay.monitor.SlotAt(wal.LSN(s.reported.Load())))
}

// When the slot changes hands, only these delays keep a key's order. A relay that lost its
// connection knows within a quarter of a second after the server closed it. If the network is lost
// without a message, it knows before the server releases the slot (on Linux; elsewhere when it next
// reads). From then on it writes nothing new. Its earlier requests are answered within lossGrace, or
// it resets its connections to the brokers, which discards what the kernel has not delivered. A
// standby sends nothing for standbyGrace after it got the slot: longer than both together. These can take longer: a suspended process or machine, a broker that handles a request late,
// and buffers in between. A single relay keeps its producer id from session to session and needs no
// timing (abandon).
//
// A server that ends COPY at a row that cannot be read releases the slot too, and every session
// ends there. The rows before it are written for endGrace: otherwise no session would deliver them.
const (
	endGrace     = 150 * time.Millisecond
	lossGrace    = 600 * time.Millisecond
	standbyGrace = time.Second
)

// awaitPredecessor waits until no record of the relay that had the slot before can be on its way.
// The reader answers the server meanwhile.
func (s *session) awaitPredecessor(deliveryCtx context.Context) error {
	if !s.start.waitForPredecessor || s.delivery.Rules().Fenced {
		return nil
	}
	over := make(chan struct{})
	defer time.AfterFunc(standbyGrace, func() { close(over) }).Stop()
	if err := s.Wait(deliveryCtx, over); err != nil {
		return err
	}
	s.relay.waitForPredecessor = false
	return nil
}

// await waits until no Send is outstanding; after a loss of the connection for lossGrace at most.
func (s *session) await(deliveryCtx context.Context, limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	lost := s.src.Lost()
	if s.delivery.Rules().Fenced {
		lost = nil
	}
	for s.delivery.Outstanding() {
		select {
		case <-s.delivery.Wake():
		case <-lost:
			lost = nil
			s.sink.Halt()
			t.Reset(min(limit, lossGrace))
		case <-t.C:
			return
		case <-deliveryCtx.Done():
			return
		}
	}
}

// confirmed is the position that the reader reports to the server. It takes the
// tracker's position, lowered by what is frozen, by the last committed checkpoint (Delivery.Limit)
// and by the promised position. Each of them only lowers it.
func (s *session) confirmed() wal.LSN {
	lsn := s.tracker.Confirmable()
	if f := wal.LSN(s.frozen.Load()); f != 0 {
		lsn = min(lsn, f)
	}
	lsn = s.promised.Limit(s.delivery.Limit(lsn))
	lsn = max(lsn, wal.LSN(s.reported.Load())) // what was reported is never taken back
	now := time.Now()
	s.lastAsked.Set(now)
	if s.reported.Swap(uint64(lsn)) != uint64(lsn) {
		s.ConfirmMoved(now)
		s.tracker.Reported(lsn)
	}
	return lsn
}

// deliver takes batches until the reader closes the channel, then drains.
func (s *session) deliver(ctx, deliveryCtx context.Context, endReading context.CancelCauseFunc) error {
	if err := s.awaitPredecessor(deliveryCtx); err != nil {
		endReading(err)
		return err
	}
	s.delivery.SetBacklog(false) // the sink may have another session's
	heart, stop := s.heartbeats()
	defer stop()
	renewal, end := s.delivery.Renewal()
	defer end()
	for {
		select {
		case now := <-heart:
			s.delivery.Heartbeat(now)
		case <-renewal:
			s.delivery.Renew()
		case b, open := <-s.intake.out:
			if !open {
				return s.drain(ctx, deliveryCtx)
			}
			through := b.Through
			if err := s.take(ctx, deliveryCtx, b); err != nil {
				return err
			}
			if s.until != 0 && through >= s.until {
				endReading(nil)
			}
		case <-s.delivery.Wake():
			if err := s.delivery.Recover(ctx, deliveryCtx); err != nil {
				return err
			}
		case err := <-s.interrupts:
			endReading(err)
			return err
		case <-deliveryCtx.Done():
			return s.DrainTimeout()
		}
	}
}

// drain waits, after intake ended, until every batch is durable.
func (s *session) drain(ctx, deliveryCtx context.Context) error {
	if s.intake.srcErr != nil && !s.endedAlive() {
		return nil // the connection is lost: outcome reports it, close waits a while
	}
	s.delivery.Finish()
	for s.delivery.Outstanding() || s.delivery.Failed() {
		select {
		case <-s.delivery.Wake():
			if err := s.delivery.Recover(ctx, deliveryCtx); err != nil {
				return err
			}
		case err := <-s.interrupts: // a drain is no reason to write on without the slot
			return err
		case <-s.intake.lost:
			return nil
		case <-deliveryCtx.Done():
			return s.DrainTimeout()
		}
	}
	if s.delivery.Holding() {
		return s.unfinished()
	}
	return nil
}

// DrainTimeout is the error of a drain that took too long.
func (s *session) DrainTimeout() error {
	if !s.delivery.Outstanding() && s.tracker.Stats().Rows == 0 && !s.taken.open {
		return ending.ErrStopped
	}
	return ErrDrainCut
}

// take routes a batch, waits for room, and hands the records to the sink.
func (s *session) take(ctx, deliveryCtx context.Context, b *wal.Batch) error {
	if s.relay.ev.BatchReceived != nil {
		s.relay.ev.BatchReceived(b)
	}
	s.relay.monitor.Read(b)
	if b.Closes != 0 {
		s.delivery.SendHeld(b.Closes)
	}
	s.taken.open = b.Open
	s.taken.reads(b)
	if b.Backlog != s.delivery.Backlog() {
		s.delivery.SetBacklog(b.Backlog)
	}
	s.relay.logNotices(time.Now())
	if len(b.Rows) == 0 {
		s.tracker.Track(checkpoint.Entry{Through: b.Through})
		s.delivery.Pass(b.Through)
		b.Release()
		return nil
	}
	f := s.delivery.Take(b)
	rejection := s.delivery.Route(f)
	entry := s.delivery.Entry(f)
	entry.Bytes = b.Bytes + f.Records().Size() + kafka.ClientBytes(f.Records().Records)
	if err := s.admit(ctx, deliveryCtx, f, entry); err != nil {
		return err
	}
	s.taken.last = b.Rows[len(b.Rows)-1].Place() // not before the tracker has them
	s.Took(entry.Last.Time, entry.Read)
	return s.delivery.Send(ctx, deliveryCtx, f, rejection)
}

// admit waits for room in the window, which is the only limit of what is in flight, and so
// the only place that waits because of memory:
//
//   - before it, the reader hands over one batch and the channel holds two, each of
//     MaxBatchBytes and a row at most;
//   - after it the sink takes whatever it is sent: the client has no limit in bytes, and its
//     limit in records (kgo.MaxBufferedRecords) is never reached. Send waits only until a
//     topic is loaded or an idle partition has answered;
//   - what is sent without an entry of its own takes the place of records that have one
//     (tries, dead letters), or is one set of heartbeats at a time.
func (s *session) admit(ctx, deliveryCtx context.Context, f *delivery.InFlight, e checkpoint.Entry) error {
	defer s.Full.Clear()
	for {
		ticket, ok := s.tracker.Track(e)
		if ok {
			f.Admit(ticket)
			return nil
		}
		s.Full.Begin(time.Now())
		s.delivery.MakeRoom()
		if s.delivery.Holding() && !s.delivery.Outstanding() && !s.delivery.Failed() {
			return s.readThrough(ctx, deliveryCtx)
		}
		select {
		case <-s.tracker.Room():
		case <-s.delivery.Wake():
			if err := s.delivery.Recover(ctx, deliveryCtx); err != nil {
				return err
			}
		case err := <-s.interrupts:
			return err
		case <-s.intake.lost:
			return s.intake.srcErr
		case <-deliveryCtx.Done():
			return s.DrainTimeout()
		}
	}
}

// readThrough looks for the end of the transaction that fills the window: its next batch did not
// fit. Everything before it is durable and confirmed.
func (s *session) readThrough(ctx, deliveryCtx context.Context) error {
	s.Full.Clear() // it moves
	for {
		select {
		case b, open := <-s.intake.out:
			if !open {
				return s.unfinished()
			}
			end := b.Closes
			s.relay.monitor.Read(b)
			b.Release()
			if end != 0 {
				return s.delivery.ReadThrough(end)
			}
		case <-ctx.Done(): // the second reading would be the next start's
			return ErrDrainCut
		case err := <-s.interrupts:
			return err
		case <-s.intake.lost:
			return s.intake.srcErr
		case <-deliveryCtx.Done():
			return s.DrainTimeout()
		}
	}
}

// unfinished is the error of a stream that ended inside a transaction.
func (s *session) unfinished() error {
	if s.intake.srcErr != nil {
		return s.intake.srcErr
	}
	return ErrDrainCut
}
