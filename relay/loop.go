package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/relay/ending"
	"github.com/cdc-relay/cdc-relay/relay/promise"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/relay/retry"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// standbyPoll is how often a standby asks for the slot: often enough to take over
// within two seconds of a clean stop.
const standbyPoll = 500 * time.Millisecond

var errEnded = errors.New("read stream: it ended without an error")

// loop repeats sessions until the stop, or a fatal error.
func (r *Relay) loop(ctx, deliveryCtx context.Context) error {
	wait := retry.Backoff{Min: r.cfg.RetryMin, Max: r.cfg.RetryMax}
	var repeats retry.Repetition
	atOnce := 0 // sessions in a row that began at once, and did not get further
	for {
		began := time.Now()
		r.progressed = false
		r.forgetServerBack()
		err := r.runSession(ctx, deliveryCtx, 0)
		r.noteDrift(ctx, err)
		if ctx.Err() != nil || deliveryCtx.Err() != nil {
			return r.stopError(r.drainOn(ctx, deliveryCtx, err))
		}
		if err == nil && r.cfg.Stream.Until != 0 {
			return nil // the stream ended there, and all of it is confirmed
		}
		if err == nil {
			err = errEnded
		}
		if r.progressed || time.Since(began) > r.cfg.RetryMax {
			wait.Reset()
		}
		if why, again := r.restartsAtOnce(err); again {
			r.log.Info().Err(err).Msg(why)
			if atOnce++; r.progressed {
				atOnce = 1
			}
			if atOnce > maxAtOnce && !pause(ctx, deliveryCtx, wait.Delay(), r.serverBack, r.tryNow) {
				return nil
			}
			continue
		}
		atOnce = 0
		same := repeats.Count(err)
		facts := r.facts()
		next := facts.After(err)
		if next.Fatal != nil {
			if next.Reason == fault.ReasonFenced && !r.pauseFenced(ctx, deliveryCtx, err) {
				return nil
			}
			return next.Fatal
		}
		delay := r.noteFailure(err, facts, &wait)
		logged := r.monitor.SetState(next.State, next.Reason, err.Error())
		r.monitor.Waits(time.Now().Add(delay))
		if next.State != status.Standby && (same == 1 && !logged || same%50 == 0) { // a standby has logged its state
			r.log.Warn().Err(err).Str("state", string(next.State)).Str("reason", next.Reason).Stringer("retry_in", delay.Round(time.Millisecond)).Int("times", same).Msg("session ended; trying again")
		}
		if !pause(ctx, deliveryCtx, delay, r.serverBack, r.tryNow) {
			return nil
		}
	}
}

// noteFailure takes the error that a session ended with, and returns how long the next one waits. A slot
// that another process has makes this relay a standby; any other error counts as a reconnect.
func (r *Relay) noteFailure(err error, facts ending.Facts, wait *retry.Backoff) (delay time.Duration) {
	if postgres.KindOf(err) != fault.KindBusy {
		r.monitor.Reconnects.Add(1)
		if r.ev.Reconnecting != nil {
			r.ev.Reconnecting(reconnectReason(err), err)
		}
		return wait.Delay()
	}
	if !facts.OwnHolder(err) {
		r.waitForPredecessor = true
		r.shared.ForgetPartial() // whoever has the slot may send its beginning again
	}
	r.monitor.Reached(true, false) // the server named the slot's holder
	wait.Reset()                   // an outage before it must not delay the first look at the slot
	return standbyPoll + wait.Delay()
}

// pauseFenced keeps two relays from fencing each other as fast as they are restarted. It returns false
// when a stop was asked for meanwhile.
func (r *Relay) pauseFenced(ctx, deliveryCtx context.Context, err error) bool {
	r.monitor.SetState(status.Blocked, fault.ReasonFenced, err.Error())
	return pause(ctx, deliveryCtx, r.cfg.RetryMax/2+rand.N(r.cfg.RetryMax/2+1), nil, nil)
}

func (r *Relay) facts() ending.Facts {
	return ending.Facts{Streamed: r.streamed.Load(), ExitWhenBlocked: r.cfg.OnBlocked == ExitWhenBlocked, OwnProcess: r.serverPID}
}

// maxAtOnce bounds sessions in a row that begin without a pause and get no further. One that had to
// drop rows lasted long. Each other session has learned something new: that rows come as text, where
// a transaction ends, which record is rejected. So only a few follow each other.
const maxAtOnce = 16

// restartsAtOnce returns why the next session begins at once after an error.
func (r *Relay) restartsAtOnce(err error) (why string, ok bool) {
	if errors.Is(err, record.ErrBinary) {
		r.olderTypes.Met()
		return "rows from before a column's type changed: reading them as text", true
	}
	if ending.ReadPast(err) {
		return "reading rows again that came while the relay could not take them", true
	}
	return delivery.RestartsAtOnce(err)
}

// forgetServerBack drops a token of serverBack that is older than the failure.
func (r *Relay) forgetServerBack() {
	select {
	case <-r.serverBack:
	default:
	}
}

// stopError is what Run returns once a stop was asked for.
func (r *Relay) stopError(err error) error {
	if late := r.drainBlocker.Load(); late != nil && errors.Is(err, ErrDrainCut) {
		return fmt.Errorf("%w: relay.drain_timeout (%s) expired, %s", err, r.cfg.DrainTimeout, *late)
	}
	if errors.Is(err, ErrDrainCut) || errors.Is(err, ending.ErrUnseen) {
		return err
	}
	return nil // refused, waiting, or standing by: nothing was in flight
}

// runSession makes the sink ready and runs one session. It returns nil only as session.run
// does. until is zero, or where the reading ends in a drain that goes on.
func (r *Relay) runSession(ctx, deliveryCtx context.Context, until wal.LSN) error {
	r.ended = sessionEnd{}
	stopped := ctx
	if until != 0 {
		ctx = deliveryCtx // the session opens although a stop was asked for
	}
	if d := r.drift.Load(); d != nil {
		return d
	}
	if err := r.readySink(ctx); err != nil {
		return err
	}
	if err := r.shared.Letters.CatchUp(ctx, rejected.Wait, false); err != nil {
		return err
	}
	src, err := r.parts.Source(ctx)
	if err != nil {
		return r.slotGone(err)
	}
	r.monitor.Reached(true, false)
	s, err := r.openSession(ctx, src)
	if err != nil {
		_ = src.Close(deliveryCtx, src.StartLSN()) // the slot's own position: nothing moves
		return err
	}
	s.until = until
	start, reported, finished := src.StartLSN(), r.known.Reported, r.shared.Finished()
	err = s.run(stopped, deliveryCtx)
	r.ended = sessionEnd{streamed: true, cause: s.cause, read: s.taken.read}
	if ending.Unreadable(err) {
		r.monitor.Unread(s.Lineage(), err)
	}
	if s.delivery.Isolates() && ending.Unreadable(err) {
		err = delivery.ErrIsolated
	}
	r.forgetServerBack()
	r.known.Reported = max(reported, wal.LSN(s.reported.Load()))
	r.progressed = r.furthest.Progressed(start, r.shared.Finished()-finished, !s.delivery.Rules().Repeats) || r.known.Reported > reported
	return err
}

// openSession makes a session of a stream. It refuses a server, a table or a slot with which this
// relay must not go on.
func (r *Relay) openSession(ctx context.Context, src Source) (*session, error) {
	r.serverPID = src.ServerProcess()
	if err := r.checkHistory(src); err != nil {
		return nil, err
	}
	if err := r.checkTables(src); err != nil {
		return nil, err
	}
	origin, start, slot := src.Origin(), src.StartLSN(), r.cfg.Replication.Slot
	r.shared.Letters.Source(deadletter.SourceID(origin.SystemID, origin.Database, slot))
	s := newSession(r, src)
	r.monitor.Begins(s.Lineage(), start)
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	// A holder that was fenced writes no letter after that.
	if err := r.shared.Letters.CatchUp(ctx, r.cfg.handover(), true); err != nil {
		return nil, err
	}
	if r.parts.Ledger != nil && s.delivery.Rules().Repeats { // else the checkpoint limits it
		promised, err := promise.Open(ctx, r.cfg.handover(), r.parts.Ledger, r.cfg.Resume(), r.holder, origin, start, src.ServerEnd(), r.log)
		if err != nil {
			return nil, err
		}
		s.promised = promised
	}
	// Behind the promise, which has to come while the slot is surely ours.
	if err := r.doubts.Absent(ctx, r.cfg.handover(), r.parts.Ledger, origin.SystemID, slot, r.cfg.Version, start, r.shared.Loss.Checkpoint, src.Tables()); err != nil {
		return nil, err
	}
	return s, nil
}

// checkTables compiles the mapping against the catalog before the first row, so
// that a mistake ends the start and not the stream.
func (r *Relay) checkTables(src Source) error {
	for _, table := range src.Tables() {
		found, err := r.parts.Router.Pin(table)
		if _, lacks := errors.AsType[*record.ColumnError](err); lacks && r.streamed.Load() {
			return &ConfigError{Err: fmt.Errorf("%w; give the table the column back, or correct outbox in the configuration and restart", err)}
		} else if err != nil {
			return &ConfigError{Err: err}
		}
		if r.streamed.Load() {
			continue
		}
		r.log.Info().Str("table", found.Table).Str("preset", found.Preset).Str("topic", found.Topic).Msg("table mapped")
		for _, warning := range found.Warnings {
			r.log.Warn().Str("table", found.Table).Msg(warning)
		}
	}
	return nil
}

// reconnectReason is an error's label in metrics.
func reconnectReason(err error) string {
	switch reason := postgres.Reason(err); reason {
	case fault.ReasonNetwork, fault.ReasonTimeout, fault.ReasonSlotInUse, fault.ReasonAuth, fault.ReasonServerShutdown:
		return reason
	}
	return "other"
}

// pause waits for d, or for a token of early or tryNow, and reports whether to continue.
func pause(ctx, deliveryCtx context.Context, d time.Duration, early, tryNow <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-early:
	case <-tryNow:
	case <-ctx.Done():
	case <-deliveryCtx.Done():
	}
	return ctx.Err() == nil && deliveryCtx.Err() == nil
}
