package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
)

// Wait returns nil at a signal, or what ends the session before that.
func (s *session) Wait(hard context.Context, signal <-chan struct{}) error {
	select {
	case <-signal:
		return nil
	case err := <-s.interrupts:
		return err
	case <-s.intake.lost:
		return s.intake.srcErr
	case <-hard.Done():
		return s.Cut()
	}
}

// Ended is what ends the session by now, but for the drain.
func (s *session) Ended() error {
	select {
	case <-s.intake.lost:
		return s.intake.srcErr
	case err := <-s.interrupts:
		return err
	default:
		return nil
	}
}

// Block shows the relay as blocked and waits for d. It ends the session when the
// source is gone, and where only a person can help, when the operator stops the
// relay or wants it to exit. A drain goes on trying what may heal by itself.
func (s *session) Block(ctx, hard context.Context, reason string, cause error, person bool, d time.Duration) error {
	if person && s.r.cfg.OnBlocked == ExitWhenBlocked {
		return &BlockedError{reason, cause}
	}
	s.r.board.SetBlocked(reason, cause)
	stop := ctx.Done()
	if !person {
		stop = nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.intake.lost:
		return s.intake.srcErr
	case err := <-s.interrupts:
		return err
	case <-stop:
		return errStopped
	case <-hard.Done():
		return s.Cut()
	}
}

// Last is the last row that was taken, and whether its transaction goes on behind the last
// batch.
func (s *session) Last() (deadletter.Row, bool) { return s.taken.last, s.taken.open }

// Sending ends when waiting for room in the sink is pointless.
func (s *session) Sending() context.Context { return s.bounds.sending }

// Judging also ends when the slot may be somebody else's.
func (s *session) Judging() context.Context { return s.bounds.judging }
