package checkpoint

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
)

// Entry is a slice of the stream as the tracker sees it.
type Entry struct {
	Rows    int           // rows that need an acknowledgement
	Bytes   int           // memory they hold until then
	Through pglogrepl.LSN // may be confirmed once this and every earlier entry is done; zero: nothing
	Commit  time.Time     // commit time of the transaction that ends at Through; zero for a keep-alive
	Read    time.Time     // when the entry was read
	First   time.Time     // commit time of its first row; zero without rows
}

// Tracker knows the greatest position such that everything before it is
// delivered. Entries go in ordered, outcomes come in any order.
//
//  1. Confirmed never decreases and never passes a pending entry.
//  2. An entry that is never done holds Confirmed for good. A session that fails
//     drops its tracker; a late outcome then moves a number that nobody reads.
//  3. Finishing a ticket twice panics: it means that an acknowledgement was
//     counted twice, after which nothing that we confirm is safe.
//
// One goroutine calls Track; every other method is safe from any goroutine.
type Tracker struct {
	confirmed atomic.Uint64
	limit     int
	room      chan struct{} // one token: an entry was done since the last receive

	mu     sync.Mutex // guards the following; held for arithmetic only
	ring   []slot     // entries [first, next), at index sequence % len
	first  uint64
	next   uint64
	rows   int
	bytes  int
	commit time.Time
}

type slot struct {
	Entry
	done    bool
	partial pglogrepl.LSN // confirmable although the entry is not done; zero: nothing
}

// Ticket is one entry in flight.
type Ticket struct {
	t   *Tracker
	seq uint64
}

// New returns a tracker that starts at the slot's confirmed position, which is
// never zero, and admits entries of at most limit bytes at a time.
func New(start pglogrepl.LSN, limit int) *Tracker {
	if start == 0 {
		//nolint:forbidigo // a zero flush position would confirm everything
		panic("checkpoint: a tracker cannot start at 0/0: a status message with flush position zero confirms everything")
	}
	t := &Tracker{limit: limit, room: make(chan struct{}, 1), ring: make([]slot, 64)}
	t.confirmed.Store(uint64(start))
	return t
}

// Track admits an entry, or says that the window is full. An entry larger than
// the whole window is admitted alone. An entry without rows is done at once, needs
// no room, and its ticket is void.
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
	t.ring[seq%uint64(len(t.ring))] = slot{Entry: e}
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
	k.t.mu.Lock()
	k.t.finish(k.seq)
	k.t.mu.Unlock()
	select {
	case k.t.room <- struct{}{}:
	default:
	}
}

// Partial reports that every row of the entry which commits before through is
// acknowledged, while a later one may never be. through is the end of a
// transaction that lies wholly in the entry or before it.
func (k Ticket) Partial(through pglogrepl.LSN) {
	t := k.t
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.ring[k.seq%uint64(len(t.ring))]
	if k.seq < t.first || k.seq >= t.next || s.done {
		return
	}
	s.partial = max(s.partial, through)
	if k.seq == t.first {
		t.confirm(s.partial)
	}
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
			t.confirm(head.partial)
			return
		}
		if t.confirm(head.Through) && !head.Commit.IsZero() {
			t.commit = head.Commit
		}
		t.first++
	}
}

func (t *Tracker) confirm(through pglogrepl.LSN) bool {
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
	if e.Through > newest.Through {
		newest.Through = e.Through
		if !e.Commit.IsZero() {
			newest.Commit = e.Commit
		}
	}
	return true
}

func (t *Tracker) grow() {
	ring := make([]slot, 2*len(t.ring))
	for seq := t.first; seq < t.next; seq++ {
		ring[seq%uint64(len(ring))] = t.ring[seq%uint64(len(t.ring))]
	}
	t.ring = ring
}

// Confirmed is what may be told to the server. It takes no lock.
func (t *Tracker) Confirmed() pglogrepl.LSN { return pglogrepl.LSN(t.confirmed.Load()) }

// Room yields after an entry was done: time to try Track again, or to look
// whether anything is still pending.
func (t *Tracker) Room() <-chan struct{} { return t.room }

// Stats is a snapshot of what is in flight.
type Stats struct {
	Entries int
	Rows    int
	Bytes   int
	Limit   int
	Oldest  time.Time // Read of the oldest pending entry; zero when there is none
	Commit  time.Time // commit time of the last confirmed transaction; zero before the first
	Pending time.Time // commit time of the oldest pending row; zero when there is none
}

// Stats takes the lock; call it at human pace.
func (t *Tracker) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Entries: int(t.next - t.first), Rows: t.rows, Bytes: t.bytes, Limit: t.limit, Commit: t.commit}
	if t.first < t.next {
		head := &t.ring[t.first%uint64(len(t.ring))]
		s.Oldest, s.Pending = head.Read, head.First
	}
	return s
}
