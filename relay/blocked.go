package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// wayOut adds how to go on without the row, first what loses nothing. The server skips
// what commits before the position, so it has to lie behind the start of the commit
// record, and everything before the row has to be delivered.
func (s *session) wayOut(commit wal.LSN, reason string, cause error) error {
	cfg, then := &s.r.cfg, ""
	if cfg.KeepsPositions() { // else the slot would be ahead of its checkpoint
		then = ", then `cdc-relay setup --accept-gap`"
	}
	return fmt.Errorf("%w; to give up its whole transaction, stop the relay and run: SELECT %s('%s', '%s')%s",
		s.letterWay(reason, cause), status.MoveSlot, cfg.Replication.Slot, commit+1, then)
}

// letterWay adds the part of it that holds also while what lies before the row is not
// delivered yet.
func (s *session) letterWay(reason string, cause error) error {
	if s.r.cfg.OnReject != StopOnReject || reason == record.ReasonSchema { // see setAside
		return cause
	}
	return fmt.Errorf("%w; to have it kept as a dead letter, set relay.on_reject: dead_letter, run `cdc-relay setup` and restart", cause)
}

// reject counts a row once, also when a later session comes to it again.
func (s *session) reject(reason string, row deadletter.Row, err error) {
	if s.r.seen.first(row) {
		s.r.board.Rejected.Add(1)
		if s.r.ev.RowRejected != nil {
			s.r.ev.RowRejected(reason, err)
		}
	}
}

// block shows the relay as blocked and waits for d. It ends the session when the
// source is gone, and where only a person can help, when the operator stops the
// relay or wants it to exit. A drain goes on trying what may heal by itself.
func (s *session) block(ctx, hard context.Context, reason string, cause error, person bool, d time.Duration) error {
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
		return s.cut()
	}
}

// RowBlockedError is a record that the brokers refuse, and the row it comes from.
type RowBlockedError struct {
	Reason  string
	Table   string // schema.name
	LSN     wal.LSN
	Commit  wal.LSN // and Ordinal: wal.Row.Place
	Ordinal uint64
	Err     error
}

func (e *RowBlockedError) Error() string {
	return fmt.Sprintf("deliver row %d of the transaction committing at %s (%s, row LSN %s): %v", e.Ordinal, e.Commit, e.Table, e.LSN, e.Err)
}

func (e *RowBlockedError) Unwrap() error { return e.Err }
