package status

import (
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// A relay can have its connections, and acknowledge rows, without getting anywhere: the server then keeps more
// and more WAL. That is judged by the position that the server has of the slot, not by the relay's own.
const (
	notMovingAfter  = 2 * time.Minute
	muchUnconfirmed = 1 << 20 // of WAL; less of it may hold no row
)

// notMoving is for how long the slot's confirmed position has stood still although there is something to
// confirm; zero: it moves, or there is nothing. Call it with the lock held, while there is a session.
func (b *Monitor) notMoving(now time.Time) time.Duration {
	if b.silent || b.snapshot == nil || b.snapshot.Drift != nil || b.budget.moved.IsZero() {
		return 0
	}
	if b.announced.state != Streaming { // while the relay was blocked, that was the reason
		return 0
	}
	from := b.budget.moved
	if b.announced.since.After(from) {
		from = b.announced.since
	}
	held := b.budget.at.Sub(from)
	if held < notMovingAfter || b.session.LastConfirm().After(b.budget.at) { // it moved since the look
		return 0
	}
	if held < longStill && b.longTransaction(now, 0) != nil && wal.LSN(b.session.Positions().Confirmed) <= b.snapshot.Slot.Confirmed {
		return 0 // it moves with the transaction's end
	}
	if int64(b.snapshot.WALEnd)-int64(b.snapshot.Slot.Confirmed) >= muchUnconfirmed {
		return held
	}
	if b.awaitsStandby() {
		return held
	}
	if lag, known := b.lag(now); known && lag >= notMovingAfter.Seconds() {
		return held
	}
	return 0
}

// notMovingText says what is known of why the position stands still. Call it with the lock held.
func (b *Monitor) notMovingText(held time.Duration, now time.Time) string {
	slot, at, stats := b.snapshot.Slot, b.session.Positions(), b.session.Stats()
	text := "the slot's confirmed position in PostgreSQL has been " + slot.Confirmed.String() + " for " + held.Round(time.Second).String() +
		", with " + wording.Bytes(max(0, int64(b.snapshot.WALEnd)-int64(slot.Confirmed))) + " of WAL after it; "
	long := b.longTransaction(now, 0)
	switch repeat := b.session.ToRepeat(stats); {
	case wal.LSN(at.Confirmed) > slot.Confirmed:
		return text + "the relay has confirmed " + wal.LSN(at.Confirmed).String() + ", which does not arrive there; look at pg_stat_replication and at the network between them, then restart the relay"
	case long != nil:
		return text + "the relay is " + long.text() + ", and its end confirms it; nothing has to be done while they grow"
	case repeat > 0:
		return text + wording.Count(repeat, "row") + " are acknowledged and wait for an earlier row, or for the end of their transaction; look at the oldest row in flight and at its topic"
	case stats.Rows > 0:
		return text + wording.Count(stats.Rows, "row") + " are in flight and not acknowledged; look at the brokers"
	case b.awaitsStandby():
		return text + "the server waits for a standby before it sends rows: " + b.snapshot.Away
	case wal.LSN(at.Received) > slot.Confirmed:
		return text + "the relay has read to " + wal.LSN(at.Received).String() + ", where no transaction has ended, and nothing more arrives; look at the slot's walsender in pg_stat_activity, which may be decoding a long transaction"
	}
	return text + "the server sends nothing; look at the slot's walsender in pg_stat_activity, which may be decoding a long transaction"
}

// standsStill is what view shows of a session that gets nowhere; ok: it does. Call it with the lock held.
func (b *Monitor) standsStill(now time.Time) (reason, message string, ok bool) {
	if held := b.notMoving(now); held > 0 {
		return fault.ReasonConfirmedNotMoving, b.notMovingText(held, now), true
	}
	return "", "", false
}
