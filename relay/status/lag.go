package status

import (
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// The lag is the age of the oldest row that is committed and not confirmed. It is known
//
//   - while such a row was read: by a session, or by the one before it, for as long as
//     nothing shows that the row was confirmed after all;
//   - while a session ended at such a row that cannot be read, and had read its transaction's beginning;
//   - as zero, when a session confirmed every row that it read, and has read the WAL up to
//     where the server's last ended when it was looked at. What was written since then is
//     younger than the look.
//
// Else there is WAL that nobody has read, and it may hold rows of any age: the lag is not
// known. While a session reads rows from such WAL, the one that it read last stands for
// later ones: transactions come in the order of their commits.

const (
	// reachedWithin is how long the stream may take to get to a position which the probe
	// saw. Until then it is not behind.
	reachedWithin = 5 * time.Second
	// flowing is how long after a row of a backlog more are expected.
	flowing = 5 * time.Second
)

// seenEnd is an end of the server's WAL. Once the stream is there, the next look moves it.
type seenEnd struct {
	end wal.LSN
	at  time.Time // of the look; zero for where the WAL ended when the session began
}

// sawWALEnd moves the mark. Call it with the lock held.
func (b *Monitor) sawWALEnd(end wal.LSN, now time.Time) {
	if b.received() >= b.backlog.seen.end {
		b.backlog.seen = seenEnd{end, now}
	}
}

func (b *Monitor) received() wal.LSN { return wal.LSN(b.session.Positions().Received) }

func (b *Monitor) caughtUp(now time.Time) bool {
	return b.received() >= b.backlog.seen.end || !b.backlog.seen.at.IsZero() && now.Sub(b.backlog.seen.at) < reachedWithin
}

// unconfirmed is the oldest row that is known to wait for its confirmation, from session
// to session.
type unconfirmed struct {
	checkpoint.Commit // zero: none is known
	of                wal.Lineage
}

// lag is how old the oldest unconfirmed row is. Call it with the lock held.
func (b *Monitor) lag(now time.Time) (seconds float64, known bool) {
	age := func(at time.Time) (float64, bool) { return max(0, now.Sub(at).Seconds()), true }
	if b.session == nil {
		switch {
		case b.state == Standby:
			return 0, false
		case b.waiting.At != 0:
			return age(b.waiting.Time)
		case b.unread().At != 0:
			return age(b.unread().Time)
		}
		return 0, false
	}
	oldest := b.session.Stats().Unreported
	newest, read := b.session.NewestCommit(now)
	switch {
	case oldest.At != 0:
		return age(oldest.Time)
	case b.waiting.At != 0:
		return age(b.waiting.Time)
	case b.unread().At != 0:
		return age(b.unread().Time)
	case b.caughtUp(now):
		return 0, true
	case !newest.IsZero() && read < flowing:
		return age(newest)
	}
	return 0, false
}

// unread is the commit of a row that cannot be read, which waits unless the confirmed position is past
// it. Call it with the lock held.
func (b *Monitor) unread() checkpoint.Commit {
	o := b.blockedRow
	if o == nil || !o.unread || b.session != nil && wal.LSN(b.session.Positions().Confirmed) > o.commit.At {
		return checkpoint.Commit{}
	}
	return o.commit
}

// leave keeps what a session that ends knows. Call it with the lock held.
func (b *Monitor) leave(s Session) {
	b.ended.positions = s.Positions()
	stats := s.Stats()
	b.ended.toRepeat = s.ToRepeat(stats)
	if stats.Unreported.At != 0 {
		b.waiting = unconfirmed{stats.Unreported, s.Lineage()}
	}
}

// enter drops what is confirmed where a session begins. Call it with the lock held.
func (b *Monitor) enter(s Session) {
	if b.waiting.of != s.Lineage() {
		b.waiting = unconfirmed{}
	}
	start := s.StartLSN()
	b.confirmed(start)
	b.read = progress{through: start}
	b.reading = openTransaction{}
	b.backlog.seen = seenEnd{end: wal.LSN(s.Positions().Server)}
}

// confirmed drops the row if a confirmed position covers it. Call it with the lock held.
func (b *Monitor) confirmed(position wal.LSN) {
	if b.waiting.At < position {
		b.waiting = unconfirmed{}
	}
}

// readAgain drops the row once a session has read it again, from when on the session knows
// it, or is past it. Call it with the lock held.
func (b *Monitor) readAgain(batch *wal.Batch) {
	if len(batch.Rows) > 0 || batch.Through > b.waiting.At {
		b.waiting = unconfirmed{}
	}
}
