package relay

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink"
)

// verdict is what follows from the end of a session.
type verdict struct {
	state  status.State
	reason string
	fatal  error // ends Run
}

// judge sorts an error by what has to happen next. What it does not know counts
// as blocked.
func (r *Relay) judge(err error) verdict {
	var config *ConfigError
	if errors.As(err, &config) {
		if !r.began.Load() {
			return verdict{fatal: err}
		}
		return r.stuck("schema", err)
	}
	if held, ok := errors.AsType[*delivery.HeldError](err); ok {
		return r.stuck(held.Reason, held.Err)
	}
	var blocked *BlockedError
	if errors.As(err, &blocked) {
		return verdict{fatal: err}
	}
	var kafka *sink.Error
	if errors.As(err, &kafka) {
		if kafka.Class == sink.Retry {
			reason := kafka.Reason
			if reason == "network" {
				reason = status.ReasonUnreachable
			}
			return verdict{state: status.Reconnecting, reason: reason}
		}
		if kafka.Reason == sink.ReasonFenced {
			return verdict{reason: kafka.Reason, fatal: err} // two that fence each other for ever deliver nothing
		}
		return r.refused(kafka.Reason, err)
	}
	if errors.Is(err, sink.ErrClosed) {
		return verdict{state: status.Reconnecting, reason: status.ReasonUnreachable}
	}
	reason := postgres.Reason(err)
	switch postgres.KindOf(err) {
	case fault.KindBusy:
		if r.ownHolder(err) { // nobody else streams, so what the relay was blocked by is still shown
			return verdict{state: status.Reconnecting, reason: reason}
		}
		return verdict{state: status.Standby, reason: reason}
	case fault.KindRetry:
		return verdict{state: status.Reconnecting, reason: reason}
	case fault.KindRefused, fault.KindLost, fault.KindDrift:
		return r.refused(reason, err)
	default: // KindProtocol, and what a later version may add
		return r.stuck(reason, err)
	}
}

// refused ends a start, and blocks a relay that was streaming.
func (r *Relay) refused(reason string, err error) verdict {
	if !r.began.Load() {
		return verdict{fatal: &RefusedError{reason, err}}
	}
	return r.stuck(reason, err)
}

// stuck is for what only a person can resolve.
func (r *Relay) stuck(reason string, err error) verdict {
	if r.cfg.OnBlocked == ExitWhenBlocked {
		return verdict{fatal: &BlockedError{reason, err}}
	}
	return verdict{state: status.Blocked, reason: reason}
}

// repetition counts how often the same error came in a row.
type repetition struct {
	text string
	n    int
}

func (r *repetition) count(err error) int {
	if err == nil || err.Error() != r.text {
		r.text, r.n = "", 0
		if err != nil {
			r.text = err.Error()
		}
	}
	r.n++
	return r.n
}

// unreadable reports whether the stream ended at a row of it, and will again.
func unreadable(err error) bool {
	e, ok := errors.AsType[*fault.Error](err)
	return ok && (e.Kind == fault.KindProtocol || e.Kind == fault.KindRefused && e.LSN != 0)
}

// ownHolder reports whether the slot is held by the connection of the last session, which
// the server has not found gone yet.
func (r *Relay) ownHolder(err error) bool {
	busy, ok := errors.AsType[*fault.Error](err)
	return ok && busy.Kind == fault.KindBusy && busy.Holder != 0 && busy.Holder == r.server
}
