package status

import (
	"errors"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Obstacle is what keeps the relay from going on, for those who act upon it. Keys and values of
// rows are never part of it.
type Obstacle struct {
	Reason   string    `json:"reason"`
	Since    time.Time `json:"since,omitzero"`
	Slot     string    `json:"slot"`
	Attempts int       `json:"attempts"` // that failed since it stands in the way
	NextTry  time.Time `json:"next_try,omitzero"`

	Row *BlockedRow `json:"row,omitempty"` // nil: it is not about one row, or the row is not known
}

// BlockedRow names a row that cannot be read, or that was read and cannot be delivered.
type BlockedRow struct {
	Table   string   `json:"table"`      // empty: not known, as the row cannot be read
	Commit  Position `json:"commit_lsn"` // where its transaction's commit record begins
	Number  uint64   `json:"number"`     // within the transaction, from 1 on; zero: not known
	Topic   string   `json:"topic,omitempty"`
	EventID string   `json:"event_id,omitempty"`
	Bytes   int      `json:"bytes,omitempty"` // of its record: key, value and headers
	Limit   int      `json:"limit,omitempty"` // that the record is over, in bytes; zero: none of the relay's own
	LimitOf string   `json:"limit_of,omitempty"`
}

// Name is the row for a line of a log: its place, and its table where that is known.
func (r *BlockedRow) Name() string {
	row := "a row"
	if r.Number != 0 {
		row = "row " + strconv.FormatUint(r.Number, 10)
	}
	if r.Commit != 0 {
		row += " of the transaction committing at " + wal.LSN(r.Commit).String()
	}
	if r.Table != "" {
		row += " (" + wording.Printable(r.Table) + ")"
	}
	return row
}

// maxEventID bounds what is shown of an event id, which is a text of the table.
const maxEventID = 100

// shownRow is what an obstacle shows of a row. rec is nil where no record can be made of it.
func shownRow(row *wal.Row, rec *record.Record, cause error) *BlockedRow {
	name := row.Place()
	shown := &BlockedRow{Commit: Position(name.Commit), Number: name.Ordinal}
	if limited, ok := errors.AsType[sink.Limited](cause); ok {
		shown.Limit, shown.LimitOf = limited.Limit()
	}
	if row.Relation != nil {
		shown.Table = row.Relation.Qualified()
	}
	if rec == nil {
		return shown
	}
	shown.Topic = rec.Topic
	shown.Bytes = len(rec.Key) + len(rec.Value)
	for i := range rec.Headers {
		h := &rec.Headers[i]
		shown.Bytes += len(h.Key) + len(h.Value)
		if i == 0 && h.Key == "id" {
			shown.EventID = string(h.Value[:min(len(h.Value), maxEventID)])
		}
	}
	return shown
}

// tries are the attempts at what stands in the way.
type tries struct {
	failed int
	next   time.Time
}

// Waits takes note of an attempt that failed, and of when the next one begins.
func (b *Monitor) Waits(next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tries.failed++
	b.tries.next = next
}

// obstacle is nil while nothing stands in the way. Call it with the lock held.
func (b *Monitor) obstacle(st *Status) *Obstacle {
	if at := b.blockedRow; at != nil && st.State == Stopping { // which has no reason of its own
		return &Obstacle{Reason: at.reason, Since: at.since, Slot: b.of.Slot, Attempts: b.tries.failed, Row: at.shown}
	}
	if st.Reason == "" || st.State == Standby || st.State == Stopping {
		return nil
	}
	o := &Obstacle{Reason: st.Reason, Since: st.ReasonSince, Slot: b.of.Slot, Attempts: b.tries.failed, NextTry: b.tries.next}
	if at := b.blockedRow; at != nil && st.State == Blocked && at.reason == st.Reason {
		o.Row = at.shown
		if !at.since.IsZero() && at.since.Before(o.Since) {
			o.Since = at.since
		}
	}
	return o
}
