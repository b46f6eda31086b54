// Package ending decides what the end of a session means: whether the next start sends rows again, and
// so which error a stop ends with; and what comes after a failure. The functions have no side effects.
package ending

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
)

// ErrDrainCut means that rows were in flight when the drain ended. Nothing is lost: the next start
// sends them again.
var ErrDrainCut = errors.New("drain cut short with rows in flight; the next start sends them again")

// ErrStopped ends a session that was asked to stop while it could not deliver, with no row in flight:
// the brokers or the router refuse the next one, its schema is not known, or the slot was just taken over.
var ErrStopped = errors.New("stopped while blocked")

// ErrLost ends a drain whose connection is lost. The stream returns the cause when it is closed.
var ErrLost = errors.New("the connection to the server was lost while records were not acknowledged")

// ErrUnseen ends a drain that delivered all rows and met a change which the next start cannot see.
var ErrUnseen = errors.New("the publication or a table changed during the drain")

// Session is what a session knows after it closed its stream.
type Session struct {
	Cause   error // why the session ended; nil: its stream ended
	Stopped bool  // the relay was asked to stop

	// Of the rows that were taken from the stream.
	Unanswered bool // the brokers have not answered a record
	Rows       int  // that are not done, by the tracker
	Open       bool // the last batch ends inside a transaction
	Repeats    bool // a row that is delivered and not confirmed is sent again (delivery.Rules)

	// Of the position that the server got last.
	Withheld    bool  // it is before the tracker's
	CloseFailed error // the server did not acknowledge it
	LastUnknown bool  // the server may lack the position after the last row
}

// sendsAgain reports whether the next start sends rows again that this session handed to the sink.
func (e *Session) sendsAgain() bool {
	switch {
	case e.Unanswered: // their records may be durable; nobody knows
		return true
	case e.Withheld: // a promised position, or one frozen at a drift, is before it
		return true
	case e.CloseFailed != nil && e.LastUnknown: // the slot may still be where it was
		return true
	case e.Cause != nil && e.Open && !e.shown(): // a transaction without its commit is read from its beginning
		return true
	case LostConnection(e.Cause) && e.Rows > 0: // the halted sink failed their records, and some may be durable
		return true
	}
	return false
}

// shown reports whether the status already counts the rows of the open transaction as rows to repeat:
// the stream ends at one of them that cannot be read.
func (e *Session) shown() bool {
	return Unreadable(e.Cause) && (!e.Repeats || e.Rows == 0)
}

// Err is the error of the session. After a stop that sends rows again it is ErrDrainCut, and with a
// drift ErrUnseen: the next start cannot see it.
func (e *Session) Err() error {
	cause := e.Cause
	if errors.Is(cause, ErrLost) && e.CloseFailed != nil {
		cause = fmt.Errorf("%w: %w", cause, e.CloseFailed)
	}
	again := e.sendsAgain()
	drifted := cause != nil && postgres.KindOf(cause) == fault.KindDrift
	switch {
	case !e.Stopped && cause != nil:
		return cause
	case !again && !drifted:
		return cause
	case errors.Is(cause, ErrLost), again && drifted:
		return fmt.Errorf("%w: %w", ErrDrainCut, cause)
	case drifted:
		return fmt.Errorf("%w: %w", ErrUnseen, cause)
	case !e.Stopped && e.CloseFailed != nil: // the stream ended where it was to: the next session has the position taken
		return fmt.Errorf("%w: %w", ErrDrainCut, e.CloseFailed)
	}
	return ErrDrainCut
}
