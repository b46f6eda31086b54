package status

import (
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// BeginSnapshot is called before the slot is read. The function that it returns shows what was read,
// and warns when the slot's WAL runs out.
func (b *Monitor) BeginSnapshot() func(*watch.Snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ahead := b.blockedRow
	return func(snapshot *watch.Snapshot) {
		now := time.Now()
		b.mu.Lock()
		b.snapshot, b.looked, b.silent = snapshot, now, false
		if b.session != nil {
			b.sawWALEnd(snapshot.WALEnd, now)
		} else {
			b.confirmed(snapshot.Slot.Confirmed)
		}
		if ahead != nil && ahead == b.blockedRow && ahead.bound == 0 {
			ahead.bound = snapshot.WALEnd
		}
		low := b.budget.observe(now, snapshot)
		b.mu.Unlock()
		b.warn(low)
	}
}

// Unanswered takes note of a look that failed.
func (b *Monitor) Unanswered(err error) {
	b.log.Debug().Err(err).Msg("could not read slot and publication")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent = true
}

// SlotAt is how far the probe last saw the slot, zero where that is beyond limit: somebody
// else moved it then.
func (b *Monitor) SlotAt(limit wal.LSN) wal.LSN {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.snapshot == nil || b.snapshot.Drift != nil || b.snapshot.Slot.Confirmed > limit {
		return 0
	}
	return b.snapshot.Slot.Confirmed
}
