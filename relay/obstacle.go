package relay

import (
	"errors"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication"
)

// obstacle is a row at which a session was blocked: one that cannot be read, or that
// was read and cannot be delivered. Each session begins before it and may stream for
// long until it is there again, so the relay is shown as blocked until one is past it,
// also between sessions, unless another relay has the slot.
//
// A row that cannot be read is known by what lies before it. Rows and commits come in
// the same order in every session, so one that no session brought before lies behind
// it. A keep-alive of any position may lie before it, unless it reaches bound.
//
// It is guarded by the board's lock.
type obstacle struct {
	of      place
	reason  string
	message string

	row deadletter.Row // that is not delivered, if it is not unread

	unread bool
	read   progress      // of the session that met it
	bound  pglogrepl.LSN // end of the server's WAL, looked at behind the first failure; zero: not looked at
}

// progress is how far a stream was read.
type progress struct {
	row     deadletter.Row // the last one
	through pglogrepl.LSN  // everything that commits before it was read
}

// rowID names a row among those of all sessions.
func rowID(row *replication.Row) deadletter.Row {
	commit, ordinal := row.Place()
	return deadletter.Row{Commit: commit, Seq: ordinal}
}

// before is the order of the stream.
func before(a, b deadletter.Row) bool {
	if a.Commit != b.Commit {
		return a.Commit < b.Commit
	}
	return a.Seq < b.Seq
}

func (p *progress) add(b *replication.Batch) {
	if n := len(b.Rows); n > 0 {
		p.row = rowID(&b.Rows[n-1])
	}
	p.through = max(p.through, b.Through)
}

// readPast says that a batch which was read lies at or behind the row.
func (o *obstacle) readPast(b *replication.Batch) bool {
	if !o.unread {
		return false
	}
	if n := len(b.Rows); n > 0 {
		// What commits before through lies before it, also where a session begins earlier.
		if last := rowID(&b.Rows[n-1]); last.Commit >= o.read.through && before(o.read.row, last) {
			return true
		}
	}
	if !b.ThroughTime.IsZero() && b.Through > o.read.through {
		return true
	}
	return o.startsPast(b.Through)
}

// startsPast says that everything up to a position, the row included, is done with.
func (o *obstacle) startsPast(at pglogrepl.LSN) bool {
	if o.unread {
		return o.bound != 0 && at >= o.bound
	}
	return at > o.row.Commit
}

// deliveredWith says that the row is among rows that are durable.
func (o *obstacle) deliveredWith(rows []replication.Row) bool {
	return !o.unread && len(rows) > 0 && !before(o.row, rowID(&rows[0])) && !before(rowID(&rows[len(rows)-1]), o.row)
}

// obstruct remembers that the session is blocked at a row which it read.
func (s *session) obstruct(at *replication.Row, reason string, cause error) {
	b := &s.r.board
	b.mu.Lock()
	defer b.mu.Unlock()
	b.obstacle = &obstacle{of: s.origin(), reason: reason, message: cause.Error(), row: rowID(at)}
}

// remember keeps where a session ended that cannot read on. One that did not get past
// what an earlier one met has read no more than that.
func (s *session) remember(err error) {
	if !unreadable(err) {
		return
	}
	b := &s.r.board
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.obstacle == nil || !b.obstacle.unread {
		b.obstacle = &obstacle{of: s.origin(), unread: true, read: s.taken.read}
	}
	b.obstacle.reason, b.obstacle.message = replication.Reason(err), err.Error()
}

// unreadable says that the stream ended at a row of it, and will again.
func unreadable(err error) bool {
	e, ok := errors.AsType[*replication.Error](err)
	return ok && (e.Kind == replication.KindProtocol || e.Kind == replication.KindRefused && e.LSN != 0)
}

// saw takes note of a batch that was read.
func (s *session) saw(b *replication.Batch) {
	s.r.pass(func(o *obstacle) bool { return o.readPast(b) })
	s.r.board.sawAgain(b)
	s.taken.read.add(b)
}

// pass forgets the obstacle if a session is past it.
func (r *Relay) pass(past func(*obstacle) bool) {
	b := &r.board
	b.mu.Lock()
	gone := b.obstacle != nil && past(b.obstacle)
	if gone {
		b.obstacle = nil
	}
	b.mu.Unlock()
	if gone {
		r.announce()
	}
}

// stuckAt is the commit of the transaction that cannot be delivered; zero: none.
func (b *board) stuckAt() pglogrepl.LSN {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.obstacle == nil || b.obstacle.unread {
		return 0
	}
	return b.obstacle.row.Commit
}
