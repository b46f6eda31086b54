package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/ending"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Wait returns nil at a signal, or the error that ends the session before it.
func (s *session) Wait(deliveryCtx context.Context, signal <-chan struct{}) error {
	select {
	case <-signal:
		return nil
	case err := <-s.interrupts:
		return err
	case <-s.intake.lost:
		return s.intake.srcErr
	case <-deliveryCtx.Done():
		return s.DrainTimeout()
	}
}

// TakeEnd returns the error that ends the session, or nil. An interrupt is handed over once, as by
// Wait and Block.
func (s *session) TakeEnd() error {
	select {
	case <-s.intake.lost:
		return s.intake.srcErr
	case err := <-s.interrupts:
		return err
	default:
		return nil
	}
}

// Block shows the relay as blocked and waits for d. It ends the session when the source is lost or
// ctx ends; if only a person can help, relay.on_blocked: exit ends it too.
func (s *session) Block(ctx, deliveryCtx context.Context, reason string, cause error, needsPerson bool, d time.Duration) error {
	if needsPerson && s.relay.cfg.OnBlocked == ExitWhenBlocked {
		return &BlockedError{Reason: reason, Err: cause}
	}
	s.relay.monitor.SetBlocked(reason, cause)
	s.relay.monitor.Waits(time.Now().Add(d))
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.relay.tryNow:
		return nil
	case <-s.intake.lost:
		return s.intake.srcErr
	case err := <-s.interrupts:
		return err
	case <-ctx.Done():
		return ending.ErrStopped
	case <-deliveryCtx.Done():
		return s.DrainTimeout()
	}
}

// DrainTimeout is the error of a drain that took too long: ErrStopped with nothing in flight.
func (s *session) DrainTimeout() error {
	if !s.delivery.Outstanding() && s.tracker.Stats().Rows == 0 && !s.taken.open {
		return ending.ErrStopped
	}
	return ErrDrainCut
}

// Last is the last row that was taken, and whether its transaction continues after the last
// batch.
func (s *session) Last() (wal.Place, bool) { return s.taken.last, s.taken.open }

// Sending ends with an interrupt, and when the source is lost.
func (s *session) Sending() context.Context { return s.bounds.sending }

// Searching ends with an interrupt, and when another relay may have the slot.
func (s *session) Searching() context.Context { return s.bounds.searching }
