package status

import (
	"math"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// budget says how long the server will keep the slot's WAL: what
// max_slot_wal_keep_size leaves, by the pace at which WAL is written. It is fed by
// the probe and guarded by the monitor's lock.
type budget struct {
	at        time.Time
	end       wal.LSN
	pace      float64 // bytes a second, averaged over paceWindow
	confirmed wal.LSN
	moved     time.Time // when the confirmed position last moved, or had nowhere to go
	warned    time.Duration
	retained  int64 // at the last warning without a limit
}

const (
	paceWindow   = 5 * time.Minute
	stalledAfter = time.Minute    // without this, WAL that waits is only on its way
	muchRetained = 1 << 30        // of a slot without a limit: each doubling is logged
	firstWarning = 24 * time.Hour // and again at each half
)

// warning is what is to be logged, at most one a look.
type warning struct {
	limit    bool          // max_slot_wal_keep_size is set
	lasts    time.Duration // zero without a limit
	left     int64
	retained int64
	pace     float64
}

// observe takes a snapshot, and returns a warning when the slot stands still and its
// WAL runs out.
func (b *budget) observe(now time.Time, s *watch.Snapshot) *warning {
	if s.WALEnd < b.end { // another server
		*b = budget{}
	}
	if !b.at.IsZero() && now.After(b.at) {
		passed := now.Sub(b.at).Seconds()
		weight := 1 - math.Exp(-passed/paceWindow.Seconds())
		if b.pace == 0 {
			weight = 1
		}
		b.pace += weight * (float64(s.WALEnd-b.end)/passed - b.pace)
	}
	b.at, b.end = now, s.WALEnd
	if s.Slot.Confirmed != b.confirmed || s.Slot.Confirmed >= s.WALEnd || b.moved.IsZero() {
		b.confirmed, b.moved = s.Slot.Confirmed, now
	}
	if now.Sub(b.moved) < stalledAfter {
		b.warned, b.retained = 0, 0
		return nil
	}
	w := &warning{pace: b.pace, retained: max(0, int64(s.WALEnd)-int64(s.Slot.Restart))}
	if s.Slot.SafeWAL == nil {
		if w.retained < max(muchRetained, 2*b.retained) {
			return nil
		}
		b.retained = w.retained
		return w
	}
	lasts, known := b.lasts(*s.Slot.SafeWAL)
	if !known || lasts > firstWarning || b.warned > 0 && lasts > b.warned/2 {
		return nil
	}
	b.warned = max(lasts, 1)
	w.limit, w.lasts, w.left = true, lasts, *s.Slot.SafeWAL
	return w
}

// lasts is how long safe bytes are enough; not known before the pace is.
func (b *budget) lasts(safe int64) (time.Duration, bool) {
	if b.pace < 1 {
		return 0, false
	}
	const longest = 10 * 365 * 24 * time.Hour // beyond which a Duration overflows
	seconds := float64(max(0, safe)) / b.pace
	if seconds > longest.Seconds() {
		return longest, true
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second), true
}

// warn logs a warning. Call it without the lock.
func (b *Monitor) warn(w *warning) {
	if w == nil {
		return
	}
	line := b.log.Warn().Str("slot", b.of.Slot).Int64("retained_wal_bytes", w.retained).Int64("wal_bytes_per_second", int64(w.pace))
	if !w.limit {
		line.Msg("the slot does not move and holds back WAL without a limit, until the server's disk is full")
		return
	}
	line.Int64("safe_wal_bytes", w.left).Stringer("lasts", w.lasts).
		Msg("the slot does not move: at the present write rate the server invalidates it after this time, and undelivered rows are lost from it")
}
