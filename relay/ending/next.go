package ending

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Next is what has to happen after a session that failed: the state and its reason until the next
// session, or the error that ends the relay.
type Next struct {
	State  status.State
	Reason string
	Fatal  error
}

// Facts are what the next step depends on beside the error.
type Facts struct {
	Streamed        bool // a session of this process began to stream
	ExitWhenBlocked bool // relay.on_blocked: exit
	OwnProcess      int  // of the server, which streamed to the last session; zero: none did
}

// After sorts an error by what has to happen next. An unknown error counts as blocked.
func (f Facts) After(err error) Next {
	if _, ok := errors.AsType[*ConfigError](err); ok {
		if !f.Streamed {
			return Next{Fatal: err}
		}
		return f.blocked(fault.ReasonSchema, err)
	}
	if held, ok := errors.AsType[*rejected.BlockedAtRowError](err); ok {
		return f.blocked(held.Reason, held.Err)
	}
	if _, ok := errors.AsType[*BlockedError](err); ok {
		return Next{Fatal: err}
	}
	if failed, ok := errors.AsType[*sink.Error](err); ok {
		return f.afterSink(failed, err)
	}
	if errors.Is(err, sink.ErrClosed) || err == ErrDrainCut { //nolint:errorlint // without a cause: the promised position could not be raised
		return Next{State: status.Reconnecting, Reason: fault.ReasonKafkaUnreachable}
	}
	reason := postgres.Reason(err)
	switch postgres.KindOf(err) {
	case fault.KindBusy:
		if f.OwnHolder(err) { // nobody else streams, so what the relay was blocked by is still shown
			return Next{State: status.Reconnecting, Reason: reason}
		}
		return Next{State: status.Standby, Reason: reason}
	case fault.KindRetry:
		return Next{State: status.Reconnecting, Reason: reason}
	case fault.KindRefused, fault.KindLost, fault.KindDrift:
		return f.refused(reason, err)
	default: // KindProtocol, and what a later version may add
		return f.blocked(reason, err)
	}
}

func (f Facts) afterSink(failed *sink.Error, err error) Next {
	switch {
	case failed.Class == sink.Retry && failed.Reason == fault.ReasonNetwork:
		return Next{State: status.Reconnecting, Reason: fault.ReasonKafkaUnreachable}
	case failed.Class == sink.Retry:
		return Next{State: status.Reconnecting, Reason: failed.Reason}
	case failed.Reason == fault.ReasonFenced:
		return Next{Reason: failed.Reason, Fatal: err} // two that fence each other for ever deliver nothing
	}
	return f.refused(failed.Reason, err)
}

// refused ends a start, and blocks a relay that was streaming.
func (f Facts) refused(reason string, err error) Next {
	if !f.Streamed {
		return Next{Fatal: &RefusedError{reason, err}}
	}
	return f.blocked(reason, err)
}

// blocked is the ending that only a person can resolve.
func (f Facts) blocked(reason string, err error) Next {
	if f.ExitWhenBlocked {
		return Next{Fatal: &BlockedError{reason, err}}
	}
	return Next{State: status.Blocked, Reason: reason}
}

// OwnHolder reports whether the slot is held by the connection of the last session, which
// the server has not found gone yet.
func (f Facts) OwnHolder(err error) bool {
	busy, ok := errors.AsType[*fault.Error](err)
	return ok && busy.Kind == fault.KindBusy && busy.Holder != 0 && busy.Holder == f.OwnProcess
}
