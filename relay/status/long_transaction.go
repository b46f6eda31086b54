package status

import (
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// LongTransaction is a transaction whose rows have been arriving for a while, and whose end was not read
// yet. Nothing after the transaction before it can be confirmed until then, so a position that stands
// still is no fault.
type LongTransaction struct {
	Rows    int64   `json:"rows"`    // that were read of it
	Bytes   int64   `json:"bytes"`   // of the stream
	Seconds float64 `json:"seconds"` // since the first of them
}

func (l *LongTransaction) text() string {
	return "reading a long transaction: " + wording.Count(l.Rows, "row") + ", " + wording.Bytes(l.Bytes) + " so far"
}

const (
	arriving  = time.Minute      // after a row of an open transaction the next one is due
	longStill = 30 * time.Minute // a transaction that is read for so long is shown as what stands in the way
)

// openTransaction is the one that the stream is in; the zero value: it is in none, or nothing of it was read.
type openTransaction struct {
	commit      wal.LSN
	rows, bytes int64
	from, last  time.Time
}

// add takes a batch that was read.
func (o *openTransaction) add(b *wal.Batch, now time.Time) {
	if !b.Open {
		*o = openTransaction{}
		return
	}
	rows, bytes := int64(b.OpenRows()), int64(b.Received)
	if n := int64(len(b.Rows)); n > 0 {
		bytes = bytes * rows / n // the others are of transactions before it
		if commit := b.Rows[n-1].Txn.Commit; commit != o.commit {
			*o = openTransaction{commit: commit, from: now}
		}
	} else if o.from.IsZero() {
		o.from = now
	}
	o.rows, o.bytes, o.last = o.rows+rows, o.bytes+bytes, now
}

// longTransaction is the transaction that is being read, once it has been for that long; nil: none is, or
// nothing more arrives of it, or what was read of it, or before it, is not taken by the brokers. Call it with
// the lock held.
func (b *Monitor) longTransaction(now time.Time, long time.Duration) *LongTransaction {
	o := &b.reading
	if b.session == nil || o.from.IsZero() || now.Sub(o.from) < long || now.Sub(o.last) >= arriving {
		return nil
	}
	if s := b.session.Stats(); s.Rows > 0 && now.Sub(s.Oldest) >= notMovingAfter {
		return nil
	}
	return &LongTransaction{o.rows, o.bytes, now.Sub(o.from).Seconds()}
}
