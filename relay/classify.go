package relay

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink"
)

// ending is what follows from the end of a session.
type ending struct {
	state  status.State
	reason string
	fatal  error // ends Run
}

// classify sorts an error by what has to happen next. An unknown error counts
// as blocked.
func (r *Relay) classify(err error) ending {
	if _, ok := errors.AsType[*ConfigError](err); ok {
		if !r.streamed.Load() {
			return ending{fatal: err}
		}
		return r.blocked(fault.ReasonSchema, err)
	}
	if held, ok := errors.AsType[*rejected.BlockedAtRowError](err); ok {
		return r.blocked(held.Reason, held.Err)
	}
	if _, ok := errors.AsType[*BlockedError](err); ok {
		return ending{fatal: err}
	}
	if failed, ok := errors.AsType[*sink.Error](err); ok {
		if failed.Class == sink.Retry {
			reason := failed.Reason
			if reason == fault.ReasonNetwork {
				reason = fault.ReasonKafkaUnreachable
			}
			return ending{state: status.Reconnecting, reason: reason}
		}
		if failed.Reason == fault.ReasonFenced {
			return ending{reason: failed.Reason, fatal: err} // two that fence each other for ever deliver nothing
		}
		return r.refused(failed.Reason, err)
	}
	if errors.Is(err, sink.ErrClosed) {
		return ending{state: status.Reconnecting, reason: fault.ReasonKafkaUnreachable}
	}
	reason := postgres.Reason(err)
	switch postgres.KindOf(err) {
	case fault.KindBusy:
		if r.ownHolder(err) { // nobody else streams, so what the relay was blocked by is still shown
			return ending{state: status.Reconnecting, reason: reason}
		}
		return ending{state: status.Standby, reason: reason}
	case fault.KindRetry:
		return ending{state: status.Reconnecting, reason: reason}
	case fault.KindRefused, fault.KindLost, fault.KindDrift:
		return r.refused(reason, err)
	default: // KindProtocol, and what a later version may add
		return r.blocked(reason, err)
	}
}

// refused ends a start, and blocks a relay that was streaming.
func (r *Relay) refused(reason string, err error) ending {
	if !r.streamed.Load() {
		return ending{fatal: &RefusedError{reason, err}}
	}
	return r.blocked(reason, err)
}

// blocked is the ending that only a person can resolve.
func (r *Relay) blocked(reason string, err error) ending {
	if r.cfg.OnBlocked == ExitWhenBlocked {
		return ending{fatal: &BlockedError{reason, err}}
	}
	return ending{state: status.Blocked, reason: reason}
}

// ownHolder reports whether the slot is held by the connection of the last session, which
// the server has not found gone yet.
func (r *Relay) ownHolder(err error) bool {
	busy, ok := errors.AsType[*fault.Error](err)
	return ok && busy.Kind == fault.KindBusy && busy.Holder != 0 && busy.Holder == r.serverPID
}
