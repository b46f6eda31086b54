package relay

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/ending"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// drain waits, after intake ended, until every batch is durable.
func (s *session) drain(ctx, deliveryCtx context.Context) error {
	if s.intake.srcErr != nil && !s.drainsDespiteError() {
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

// unfinished is the error of a stream that ended inside a transaction.
func (s *session) unfinished() error {
	if s.intake.srcErr != nil {
		return s.intake.srcErr
	}
	return ErrDrainCut
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

// drainsDespiteError reports that the rows before the end of the stream are delivered although it ended
// with an error (awaitRowsBefore): its connection works, and it had to drop rows or came to one that
// cannot be read. Every later session stops at such a row, and whoever moves the slot past it also skips
// what is not delivered before it. With exactly-once it is false: Delivery.Unreadable delivers these
// rows, and what is not committed is read again.
func (s *session) drainsDespiteError() bool {
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
	if connection { // lost is closed first: the deliverer would take a halt for a failure and resume
		s.sink.Halt()
		s.bounds.endSearching() // a search would fence the relay that has the slot by now
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
	final, cancel := context.WithTimeout(context.WithoutCancel(deliveryCtx), replication.CloseTimeout)
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
// kept rows before an unreadable one from being delivered.
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

// When the slot changes hands, only these delays keep a key's order. A relay that lost its
// connection knows within a quarter of a second after the server closed it. If the network is lost
// without a message, it knows before the server releases the slot (on Linux; elsewhere when it next
// reads). From then on it writes nothing new. Its earlier requests are answered within lossGrace, or
// it resets its connections to the brokers, which discards what the kernel has not delivered. A
// standby sends nothing for standbyGrace after it got the slot: longer than both together. A
// suspended process or machine, a broker that handles a request late, and buffers in between can
// take longer. A single relay keeps its producer id from session to session and needs no
// timing (abandon).
//
// A server that ends COPY at a row that cannot be read releases the slot too, and every session
// ends there. The rows before it are written for endGrace: otherwise no session would deliver them.
const (
	endGrace     = 150 * time.Millisecond
	lossGrace    = 600 * time.Millisecond
	standbyGrace = time.Second
)

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
	return s.taken.last.Commit >= max(s.start.lsn, s.relay.monitor.SlotAt(wal.LSN(s.reported.Load())))
}
