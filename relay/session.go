package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/relay/ending"
	"github.com/cdc-relay/cdc-relay/relay/promise"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
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
	cause error   // what ended the session; after a stop run may return ErrDrainCut instead

	interrupts chan error    // why the session has to end, from any goroutine
	frozen     atomic.Uint64 // not zero: later calls of confirmed return no more than this, or what was reported
	reported   atomic.Uint64 // the highest position that confirmed returned
	lastAsked  status.Moment // when the reader last called confirmed
	stopping   time.Time     // since when the probe sees the server shut down; used only by the probe
}

// sessionStart is what a session begins with.
type sessionStart struct {
	lsn                wal.LSN // the slot's position
	alreadySentBelow   wal.LSN // Config.AlreadySent holds before it
	waitForPredecessor bool    // records of another producer may be on their way
}

// intake is how the reader hands batches to the deliverer.
type intake struct {
	out     chan *wal.Batch // the reader sends, and closes at its end
	lost    chan struct{}   // closed by the reader when the source failed; if drainsDespiteError, only after awaitRowsBefore
	srcErr  error           // written by the reader before it closes out
	emptied chan struct{}   // closed by the deliverer when it is done with every batch it took
}

// taken is the end of the stream that the deliverer has taken.
type taken struct {
	open bool      // the last batch ends inside a transaction
	last wal.Place // of the last row
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
	sending      context.Context // ends with an interrupt, and when the source is lost
	endSending   context.CancelFunc
	searching    context.Context // ends with an interrupt, and when another relay may have the slot
	endSearching context.CancelFunc
}

func newSession(r *Relay, src Source) *session {
	s := &session{
		relay: r, src: src, history: src.Origin(), sink: r.sink,
		tracker:    checkpoint.New(src.StartLSN(), r.cfg.MaxInFlightBytes),
		start:      sessionStart{src.StartLSN(), r.alreadySentBelow(src.Origin()), r.waitForPredecessor},
		intake:     intake{out: make(chan *wal.Batch, 2), lost: make(chan struct{}), emptied: make(chan struct{})},
		interrupts: make(chan error, 1),
	}
	s.reported.Store(uint64(src.StartLSN()))
	s.lastAsked.Set(time.Now())
	return s
}

// open makes the delivery.
func (s *session) open(ctx context.Context) (err error) {
	s.delivery, err = s.relay.shared.Open(ctx, s, delivery.Start{
		Sink: s.sink, Origin: s.history, LSN: s.start.lsn, End: s.src.ServerEnd(), Tracker: s.tracker, AlreadySent: s.alreadySent,
	})
	return err
}

// run streams until the source ends. It returns nil when everything that was read is delivered and
// confirmed, or when a stop ended it with nothing in flight: it could not deliver what is left.
func (s *session) run(ctx, deliveryCtx context.Context) error {
	readUntil := ctx
	if s.until != 0 {
		readUntil = deliveryCtx // a drain that goes on reads although the stop was asked for
	}
	reading, endReading := context.WithCancelCause(readUntil)
	defer endReading(nil)
	if s.until != 0 && s.start.lsn >= s.until {
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
		s.relay.ev.SessionStarted(s.src.StartLSN())
	}
	var reader sync.WaitGroup
	reader.Go(func() { s.read(reading) })
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

// read runs the source. After its end it watches the connection until the deliverer is done.
func (s *session) read(reading context.Context) {
	s.intake.srcErr = s.src.Run(reading, s.intake.out, s.confirmed)
	if s.intake.srcErr != nil && !s.drainsDespiteError() {
		s.sourceLost(ending.LostConnection(s.intake.srcErr))
	}
	close(s.intake.out)
	switch {
	case s.intake.srcErr == nil:
		s.watchConnection()
	case s.drainsDespiteError():
		s.awaitRowsBefore()
	}
}

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

// heartbeats ticks when the configuration asks for heartbeat records, as Debezium's
// heartbeat.interval.ms does.
func (s *session) heartbeats() (<-chan time.Time, func()) {
	every := s.relay.parts.Router.HeartbeatInterval()
	if every <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(every)
	return t.C, t.Stop
}

// take routes a batch, waits for room, and hands the records to the sink.
func (s *session) take(ctx, deliveryCtx context.Context, b *wal.Batch) error {
	if s.relay.ev.BatchReceived != nil {
		s.relay.ev.BatchReceived(b)
	}
	s.relay.monitor.Read(b)
	if err := s.delivery.Begin(b); err != nil {
		return err
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
	refusal := s.delivery.Route(f)
	s.delivery.DivertParked(f)
	entry := s.delivery.Entry(f)
	if err := s.admit(ctx, deliveryCtx, f, entry); err != nil {
		return err
	}
	s.taken.last = b.Rows[len(b.Rows)-1].Place() // not before the tracker has them
	s.Took(entry.Last.Time, entry.Read)
	return s.delivery.Send(ctx, deliveryCtx, f, refusal)
}

// admit waits for room in the window, which is the only limit of what is in flight, and so
// the only place that waits because of memory:
//
//   - before it, the reader hands over one batch and the channel holds two, each of
//     MaxBatchBytes and a row at most;
//   - after it the sink takes whatever it is sent: the client has no limit in bytes, and its
//     limit in records (kgo.MaxBufferedRecords) is never reached. Send waits only for
//     brokers: until a topic is loaded, say, or an idle partition has answered;
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
