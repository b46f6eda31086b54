package status

import (
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// blockedRow is a row at which a session was blocked: one that cannot be read, or that
// was read and cannot be delivered. Each session begins before it and may stream for
// long until it is there again, so the relay is shown as blocked until one is past it,
// also between sessions, unless another relay has the slot.
//
// A row that cannot be read is known by what lies before it. Rows and commits come in
// the same order in every session, so one that no session brought before comes after
// it. A keep-alive of any position may come before it, unless it reaches bound.
//
// It is guarded by the monitor's lock.
type blockedRow struct {
	of      wal.Lineage
	reason  string
	message string

	row   wal.Place   // that is not delivered, if it is not unread
	shown *BlockedRow // for people
	since time.Time   // it stands in the way

	unread bool
	commit checkpoint.Commit // of the unread row's transaction; zero: not known
	read   progress          // of the session that met it
	bound  wal.LSN           // end of the server's WAL, looked at after the first failure; zero: not looked at
}

// progress is how far a stream was read.
type progress struct {
	row     wal.Place // the last one
	through wal.LSN   // everything that commits before it was read
}

func (p *progress) add(b *wal.Batch) {
	if n := len(b.Rows); n > 0 {
		p.row = b.Rows[n-1].Place()
	}
	p.through = max(p.through, b.Through)
}

// readPast reports whether a batch that was read lies at or after the row.
func (o *blockedRow) readPast(b *wal.Batch) bool {
	if !o.unread {
		return false
	}
	if n := len(b.Rows); n > 0 {
		// What commits before through lies before it, also where a session begins earlier.
		if last := b.Rows[n-1].Place(); last.Commit >= o.read.through && o.read.row.Compare(last) < 0 {
			return true
		}
	}
	if !b.ThroughTime.IsZero() && b.Through > o.read.through {
		return true
	}
	return o.startsPast(b.Through)
}

// startsPast reports whether a session that starts at a position starts after the row.
func (o *blockedRow) startsPast(at wal.LSN) bool {
	if o.unread {
		return o.bound != 0 && at >= o.bound
	}
	return at > o.row.Commit
}

// deliveredWith reports whether the row is among rows that are durable.
func (o *blockedRow) deliveredWith(rows []wal.Row) bool {
	return !o.unread && len(rows) > 0 && o.row.Compare(rows[0].Place()) >= 0 && o.row.Compare(rows[len(rows)-1].Place()) <= 0
}

// BlockedAt remembers that a session is blocked at a row that it read. rec is its record; nil:
// none can be made of it.
func (b *Monitor) BlockedAt(row *wal.Row, rec *record.Record, of wal.Lineage, reason string, cause error) {
	at := &blockedRow{of: of, reason: reason, message: cause.Error(), row: row.Place(), shown: shownRow(row, rec, cause), since: time.Now()}
	b.mu.Lock()
	defer b.mu.Unlock()
	if before := b.blockedRow; before != nil && !before.unread && before.row == at.row && before.of == of {
		at.since = before.since
	}
	b.blockedRow = at
}

// Unread remembers where a session ended that cannot read on. A session that did not get past
// what an earlier one met has read no more than that.
func (b *Monitor) Unread(of wal.Lineage, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.blockedRow == nil || !b.blockedRow.unread {
		b.blockedRow = &blockedRow{of: of, unread: true, read: b.read}
	}
	o := b.blockedRow
	o.reason, o.message = postgres.Reason(err), err.Error()
	o.shown, o.commit = nil, checkpoint.Commit{}
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Row != nil {
		o.shown = &BlockedRow{Table: e.Row.Table, Commit: Position(e.Row.Commit), Number: e.Row.Number}
		o.commit = checkpoint.Commit{At: e.Row.Commit, Time: e.Row.Time}
	}
}

// Read takes note of a batch that was read.
func (b *Monitor) Read(batch *wal.Batch) {
	now := time.Now()
	b.forgetIf(func(o *blockedRow) bool { return o.readPast(batch) })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readAgain(batch)
	b.read.add(batch)
	b.reading.add(batch, now)
	b.readRows(batch, now)
}

// Begins takes note of where a session begins.
func (b *Monitor) Begins(of wal.Lineage, start wal.LSN) {
	b.forgetIf(func(o *blockedRow) bool { return o.of != of || o.startsPast(start) })
}

// Delivered takes note of rows that are durable.
func (b *Monitor) Delivered(rows []wal.Row) {
	b.forgetIf(func(o *blockedRow) bool { return o.deliveredWith(rows) })
}

// forgetIf forgets the blocked row once a session is past it.
func (b *Monitor) forgetIf(past func(*blockedRow) bool) {
	b.mu.Lock()
	gone := b.blockedRow != nil && past(b.blockedRow)
	if gone {
		b.blockedRow = nil
	}
	b.mu.Unlock()
	if gone {
		b.announce()
	}
}

// BlockedCommit is the commit of the transaction that cannot be delivered; zero: none.
func (b *Monitor) BlockedCommit() wal.LSN {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.blockedRow == nil || b.blockedRow.unread {
		return 0
	}
	return b.blockedRow.row.Commit
}
