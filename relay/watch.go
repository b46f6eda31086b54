package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/sink"
)

// What runs beside the sessions: the tick that keeps what is shown current, the ping of idle
// brokers, and the probe of slot and publication.

// tick keeps the shown state current, and notes for /livez that the loops run.
func (r *Relay) tick(stopped <-chan struct{}) {
	t := time.NewTicker(250 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			r.monitor.Tick(now)
			r.endSilent()
			if r.readerAlive(now) {
				r.monitor.LastTick.Store(now.UnixNano())
			}
		case <-stopped:
			return
		}
	}
}

// endSilent ends a session whose server has been silent for so long that another relay may soon
// hold the slot, while records are on their way: they would land after newer ones of their key.
func (r *Relay) endSilent() {
	s := r.session.Load()
	if s == nil {
		return
	}
	limit := r.cfg.Replication.WalSenderTimeout * 2 / 3
	if silent := s.src.Silent(); limit > 0 && silent > limit && s.delivery.Outstanding() {
		s.interrupt(&fault.Error{
			Kind: fault.KindRetry, Reason: fault.ReasonTimeout, Op: "read from server",
			Err: fmt.Errorf("silent for %s while records are not acknowledged; another relay may take the slot after %s", silent.Round(time.Second), r.cfg.Replication.WalSenderTimeout),
		})
	}
}

// readerAlive reports whether the session's reader still asks for the confirmed position, which it
// does at least once a second.
func (r *Relay) readerAlive(now time.Time) bool {
	s := r.session.Load()
	if s == nil {
		return true
	}
	ago, _ := s.lastAsked.Ago(now)
	return ago < stuckAfter
}

// stuckAfter is how long a loop that should run every second may stand still before it counts as
// stuck.
const stuckAfter = 20 * time.Second

// pingInterval is how often idle brokers are asked whether they are there.
const pingInterval = 10 * time.Second

// ping keeps the shown state of the brokers true while nothing is sent to them, and ends a session
// whose dead-letter topic does not keep every letter any more.
func (r *Relay) ping(deliveryCtx context.Context, stopped <-chan struct{}) {
	t := time.NewTicker(pingInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-stopped:
			return
		}
		ctx, cancel := context.WithTimeout(deliveryCtx, pingInterval/2)
		present := r.monitor.Sink()
		if p, ok := present.(sink.Pinger); ok {
			p.Ping(ctx)
		}
		if k, ok := present.(sink.LetterKeeper); ok {
			r.lettersKept(k.LettersKept(ctx))
		}
		cancel()
	}
}

// lettersKept ends the session for the reason why the dead-letter topic does not keep every letter;
// nil: it does. A start is refused for the same, so no session begins until the topic is right
// (readySink).
func (r *Relay) lettersKept(refused error) {
	if refused == nil {
		return
	}
	r.lettersLost.Store(true)
	if s := r.session.Load(); s != nil {
		s.interrupt(refused)
	}
}

// probe reads slot and publication over a connection of its own. A drift ends the
// session with the position frozen: rows may be missing from the stream, and
// confirming past them would lose them for good. A server that answers again after it did
// not cuts a pause of Run's goroutine short.
func (r *Relay) probe(deliveryCtx context.Context, stopped <-chan struct{}) {
	defer r.parts.Probe.Close()
	t := time.NewTicker(r.cfg.ProbeInterval)
	defer t.Stop()
	for away := false; ; {
		next := r.cfg.ProbeInterval
		soon, err := r.probeOnce(deliveryCtx)
		if err == nil && away {
			select {
			case r.serverBack <- struct{}{}:
			default:
			}
		}
		away = err != nil
		if soon {
			next = min(next, time.Second)
		}
		t.Reset(next)
		select {
		case <-t.C:
		case <-stopped:
			return
		}
	}
}

// unreachableGrace is how long a stopping server is kept waiting while the brokers cannot be
// reached: nothing that it waits for is delivered then.
const unreachableGrace = time.Second

// probeOnce returns why the probe failed, and whether the next one has to come soon: the server is
// about to stop, or may stop unnoticed because the brokers take nothing.
func (r *Relay) probeOnce(deliveryCtx context.Context) (soon bool, err error) {
	ctx, cancel := context.WithTimeout(deliveryCtx, r.cfg.ProbeInterval+5*time.Second)
	defer cancel()
	show := r.monitor.BeginSnapshot()
	snapshot, err := r.parts.Probe.Read(ctx)
	s := r.session.Load()
	grace := r.cfg.Stream.ShutdownGrace
	if k := r.monitor.Sink(); s != nil && k != nil && k.Reachable() != nil {
		soon, grace = true, min(grace, unreachableGrace)
	}
	if err != nil {
		r.monitor.Unanswered(err)
		if s != nil {
			s.serverStops(err, time.Now(), grace)
			soon = soon || !s.stopping.IsZero()
		}
		return soon, err
	}
	show(snapshot)
	changed, since := snapshot.Drift, r.noDriftUntil // copies: the monitor has the snapshot
	if changed == nil {
		r.noDriftUntil = snapshot.WALEnd
		if s != nil {
			if taken := s.slotTaken(snapshot); taken != nil {
				s.interrupt(taken)
				return soon, nil
			}
			changed = s.slotMoved(snapshot)
		}
	}
	switch {
	case changed != nil && r.streamed.Load():
		r.drift.CompareAndSwap(nil, &drift{changed, since})
		if s != nil {
			s.frozen.CompareAndSwap(0, s.reported.Load())
			s.interrupt(r.drift.Load())
		}
	case s != nil:
		s.stopping = time.Time{}
	}
	return soon, nil
}

// serverStops ends the session of a server that has been shutting down for longer than grace.
// The server waits for rows that Kafka does not take, and while the window is full the stream
// does not see its requests.
func (s *session) serverStops(err error, now time.Time, grace time.Duration) {
	switch {
	case postgres.Reason(err) != fault.ReasonServerShutdown:
		s.stopping = time.Time{}
	case s.stopping.IsZero():
		s.stopping = now
	case now.Sub(s.stopping) >= grace:
		s.interrupt(err)
	}
}

// interrupt asks the deliverer to end the session.
func (s *session) interrupt(err error) {
	select {
	case s.interrupts <- err:
		s.bounds.endSending()
		s.bounds.endSearching()
	default:
	}
}
