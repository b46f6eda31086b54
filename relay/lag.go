package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/jackc/pglogrepl"
)

// The lag is the age of the oldest row that is committed and not confirmed. It is known
//
//   - while such a row was read: by a session, or by the one before it, for as long as
//     nothing shows that the row was confirmed after all;
//   - as zero, when a session confirmed every row that it read, and has read the WAL up to
//     where the server's last ended when it was looked at. What was written since then is
//     younger than the look.
//
// Else there is WAL that nobody has read, and it may hold rows of any age: the lag is not
// known. While a session reads rows from such WAL, the one that it read last stands for
// those behind it: transactions come in the order of their commits.

const (
	// reachedWithin is how long the stream may take to get to a position which the probe
	// saw. Until then it is not behind.
	reachedWithin = 5 * time.Second
	// flowing is how long after a row of a backlog more are expected.
	flowing = 5 * time.Second
)

// mark is an end of the server's WAL. Once the stream is there, the next look moves it.
type mark struct {
	end pglogrepl.LSN
	at  time.Time // of the look; zero for where the WAL ended when the session began
}

// look moves the mark. Call it with the board's lock held.
func (s *session) lookedAt(end pglogrepl.LSN, now time.Time) {
	if s.src.Received() >= s.shown.mark.end {
		s.shown.mark = mark{end, now}
	}
}

func (s *session) caughtUp(now time.Time) bool {
	return s.src.Received() >= s.shown.mark.end || !s.shown.mark.at.IsZero() && now.Sub(s.shown.mark.at) < reachedWithin
}

// unconfirmed is the oldest row that is known to wait for its confirmation, from session
// to session.
type unconfirmed struct {
	checkpoint.Commit // zero: none is known
	of                place
}

// lag says how old the oldest unconfirmed row is. Call it with the board's lock held.
func (b *board) lag(now time.Time) (seconds float64, known bool) {
	age := func(at time.Time) (float64, bool) { return max(0, now.Sub(at).Seconds()), true }
	if b.session == nil {
		if b.waiting.At == 0 || b.state == Standby {
			return 0, false
		}
		return age(b.waiting.Time)
	}
	s := b.session
	oldest := s.tracker.Stats().Unconfirmed
	newest := s.shown.newestAt.Load()
	switch {
	case oldest.At != 0:
		return age(oldest.Time)
	case b.waiting.At != 0:
		return age(b.waiting.Time)
	case s.caughtUp(now):
		return 0, true
	case newest != 0 && time.Duration(instant(now)-newest) < flowing:
		return age(time.Unix(0, s.shown.newest.Load()))
	}
	return 0, false
}

// leave keeps what a session that ends knows. Call it with the lock held.
func (b *board) leave(s *session) {
	b.last = s.positions()
	b.repeat = s.delivery.toRepeat(s.tracker.Stats())
	if oldest := s.tracker.Stats().Unconfirmed; oldest.At != 0 {
		b.waiting = unconfirmed{oldest, s.origin()}
	}
}

// enter drops what is confirmed where a session begins. Call it with the lock held.
func (b *board) enter(s *session) {
	if b.waiting.of != s.origin() {
		b.waiting = unconfirmed{}
	}
	b.done(s.src.Start())
}

// done drops the row if a confirmed position covers it. Call it with the lock held.
func (b *board) done(confirmed pglogrepl.LSN) {
	if b.waiting.At < confirmed {
		b.waiting = unconfirmed{}
	}
}

// sawAgain drops the row once a session has read it again, from when on the session knows
// it, or is past it.
func (b *board) sawAgain(batch *replication.Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(batch.Rows) > 0 || batch.Through > b.waiting.At {
		b.waiting = unconfirmed{}
	}
}

// commitOf is the commit of a row. A message outside any transaction has none: it counts
// from when it was read.
func (f *flight) commitOf(row int) checkpoint.Commit {
	r := &f.batch.Rows[row]
	commit, _ := r.Place()
	if r.Outside() {
		return checkpoint.Commit{At: commit, Time: f.read}
	}
	return checkpoint.Commit{At: commit, Time: r.Txn.Time}
}
