package checkpoint

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Entry is a slice of the stream, reduced to what the tracker needs.
type Entry struct {
	Rows    int       // rows that need an acknowledgement
	Open    int       // rows at the end whose transaction continues in the next entry; counted in Rows
	Bytes   int       // memory they hold until then
	Through wal.LSN   // may be confirmed once this and every earlier entry is done; zero: nothing
	Read    time.Time // when the deliverer took it
	First   Commit    // of its first row; zero without rows
	Last    Commit    // of its last row; zero without rows
}

// Commit is the commit of a row's transaction.
type Commit struct {
	At   wal.LSN // start of the commit record: a confirmed position beyond it covers the row
	Time time.Time
}

// Tracker knows the greatest position such that everything before it is
// delivered. Entries go in ordered, outcomes come in any order.
//
//  1. Confirmable never decreases and never passes a pending entry.
//  2. An entry that is never done holds Confirmable for good. A session that fails
//     drops its tracker; a late outcome then moves a number that nobody reads.
//  3. Finishing a ticket twice panics: it means that an acknowledgement was
//     counted twice, after which nothing that we confirm is safe.
//
// One goroutine calls Track; every other method is safe from any goroutine.
type Tracker struct {
	confirmed atomic.Uint64
	limit     int
	room      chan struct{} // one token: an entry was done since the last receive

	mu         sync.Mutex // guards the following; held for arithmetic only
	ring       []tracked  // entries [first, next), at index sequence % len
	first      uint64
	next       uint64
	rows       int
	bytes      int
	open       int      // rows of finished entries that cannot be confirmed yet: their transaction continues in a pending entry
	unreported []Commit // of rows that are done and not yet reported to the server, in order
}

// maxUnreported bounds unreported. A further commit is merged into the last entry, which keeps its
// time.
const maxUnreported = 256

type tracked struct {
	Entry
	done      bool
	partial   wal.LSN // confirmable although the entry is not done; zero: nothing
	remaining Commit  // of the first row after partial
}

// Ticket is one entry in flight.
type Ticket struct {
	tracker *Tracker
	seq     uint64
}

// New returns a tracker that starts at the slot's confirmed position, which is
// never zero, and admits entries of at most limit bytes at a time.
func New(start wal.LSN, limit int) *Tracker {
	if start == 0 {
		//nolint:forbidigo // a defect of the caller: Open of package replication refuses such a slot
		panic("checkpoint: a tracker cannot start at 0/0: the slot has no confirmed position")
	}
	t := &Tracker{limit: limit, room: make(chan struct{}, 1), ring: make([]tracked, 64)}
	t.confirmed.Store(uint64(start))
	return t
}

// Track admits an entry, or reports that the window is full. An entry larger than
// the whole window is admitted alone. An entry without rows is done at once and needs
// no room; its ticket must not be used.
func (t *Tracker) Track(e Entry) (Ticket, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows > 0 && e.Rows > 0 && t.bytes+e.Bytes > t.limit {
		return Ticket{}, false
	}
	if e.Rows == 0 && t.extend(e) {
		return Ticket{}, true
	}
	if int(t.next-t.first) == len(t.ring) {
		t.grow()
	}
	seq := t.next
	t.ring[seq%uint64(len(t.ring))] = tracked{Entry: e}
	t.next++
	t.rows += e.Rows
	t.bytes += e.Bytes
	if e.Rows == 0 {
		t.finish(seq)
	}
	return Ticket{t, seq}, true
}

// Done reports that every row of the entry is acknowledged.
func (k Ticket) Done() {
	k.tracker.mu.Lock()
	k.tracker.finish(k.seq)
	k.tracker.mu.Unlock()
	select {
	case k.tracker.room <- struct{}{}:
	default:
	}
}

// Partial reports that every row of the entry which commits before through is
// acknowledged, while a later one may never be. through is the end of a
// transaction that lies wholly in the entry or before it; next is the commit of the
// first row that is left.
func (k Ticket) Partial(through wal.LSN, next Commit) {
	t := k.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.ring[k.seq%uint64(len(t.ring))]
	if k.seq < t.first || k.seq >= t.next || s.done {
		return
	}
	if through > s.partial {
		s.partial, s.remaining = through, next
	}
	if k.seq == t.first {
		t.confirmPart(s)
	}
}

// confirmPart confirms what is done of the oldest pending entry.
func (t *Tracker) confirmPart(head *tracked) {
	if t.confirm(head.partial) {
		t.open = 0
		t.awaitReport(head.First)
		head.First = head.remaining
	}
}

// awaitReport keeps the commit of a finished row until a status message has reported it to the server.
func (t *Tracker) awaitReport(c Commit) {
	n := len(t.unreported)
	switch {
	case c.At == 0 || n > 0 && c.At <= t.unreported[n-1].At:
	case n == maxUnreported:
		t.unreported[n-1].At = c.At
	default:
		t.unreported = append(t.unreported, c)
	}
}

// Reported takes the position that was reported to the server.
func (t *Tracker) Reported(lsn wal.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for n < len(t.unreported) && t.unreported[n].At < lsn {
		n++
	}
	t.unreported = append(t.unreported[:0], t.unreported[n:]...)
}

func (t *Tracker) finish(seq uint64) {
	s := &t.ring[seq%uint64(len(t.ring))]
	if seq < t.first || seq >= t.next || s.done {
		//nolint:forbidigo // an acknowledgement was counted twice: nothing that we confirm is safe any more
		panic(fmt.Sprintf("checkpoint: entry %d finished twice (pending entries %d to %d)", seq, t.first, t.next))
	}
	s.done = true
	t.rows -= s.Rows
	t.bytes -= s.Bytes
	for t.first < t.next {
		head := &t.ring[t.first%uint64(len(t.ring))]
		if !head.done {
			t.confirmPart(head)
			return
		}
		if t.confirm(head.Through) {
			t.open = head.Open
		} else {
			t.open += head.Open
		}
		t.awaitReport(head.First)
		t.awaitReport(head.Last)
		t.first++
	}
}

func (t *Tracker) confirm(through wal.LSN) bool {
	if uint64(through) <= t.confirmed.Load() {
		return false
	}
	t.confirmed.Store(uint64(through))
	return true
}

// extend adds a position to the newest entry if that has no rows either. So a
// busy database beside a stuck outbox costs no memory, however many keep-alives
// it sends.
func (t *Tracker) extend(e Entry) bool {
	if t.first == t.next {
		return false
	}
	newest := &t.ring[(t.next-1)%uint64(len(t.ring))]
	if newest.Rows > 0 {
		return false
	}
	newest.Through = max(newest.Through, e.Through)
	return true
}

func (t *Tracker) grow() {
	ring := make([]tracked, 2*len(t.ring))
	for seq := t.first; seq < t.next; seq++ {
		ring[seq%uint64(len(ring))] = t.ring[seq%uint64(len(t.ring))]
	}
	t.ring = ring
}

// Confirmable is the position that may be reported to the server. It takes no lock.
func (t *Tracker) Confirmable() wal.LSN { return wal.LSN(t.confirmed.Load()) }

// Room yields after an entry was done: time to try Track again, or to look
// whether anything is still pending.
func (t *Tracker) Room() <-chan struct{} { return t.room }

// Stats is a snapshot of what is in flight.
type Stats struct {
	Entries    int
	Rows       int // of entries that are not done
	Waiting    int // acknowledged rows that are not confirmable yet: an earlier row, or one of their transaction, is pending
	Bytes      int
	Limit      int
	Oldest     time.Time // Read of the oldest pending entry; zero when there is none
	Unreported Commit    // of the oldest row that is not yet reported to the server; zero when there is none
}

// Stats takes the lock; do not call it for each batch.
func (t *Tracker) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Entries: int(t.next - t.first), Rows: t.rows, Waiting: t.open, Bytes: t.bytes, Limit: t.limit}
	if t.first < t.next {
		head := &t.ring[t.first%uint64(len(t.ring))]
		s.Oldest, s.Unreported = head.Read, head.First
	}
	for seq := t.first; seq < t.next; seq++ {
		if e := &t.ring[seq%uint64(len(t.ring))]; e.done {
			s.Waiting += e.Rows
		}
	}
	if len(t.unreported) > 0 {
		s.Unreported = t.unreported[0]
	}
	return s
}
