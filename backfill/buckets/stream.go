package buckets

import (
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Txn names a transaction of one history: another history has none with the same three.
type Txn struct {
	Commit wal.LSN // start of its commit record; zero: there is none
	XID    uint32
	Time   time.Time // of the commit, by the server's clock, UTC
}

// TxnOf is the transaction of a row.
func TxnOf(row *wal.Row) Txn {
	return Txn{Commit: row.Txn.Commit, XID: row.Txn.XID, Time: row.Txn.Time.UTC()}
}

// Streamed names transactions in the stream of one publication. A server with another history lacks them.
type Streamed struct {
	Last Txn // the last transaction before the position up to which all is delivered
	Seen Txn // the last one after that position that the snapshot of the last bucket sees
}

// shows reports whether a snapshot has a row that comes after the position up to which all is delivered.
func (s *Streamed) shows(taken *Snapshot, row *wal.Row) bool {
	// After Seen the snapshot has nothing. A transaction there with an id that it sees is of another history.
	return row.Txn.Commit <= s.Seen.Commit && taken.Sees(row.Txn.XID)
}

// Window compares a snapshot with the WAL around it: a commit is in the WAL before a snapshot sees it, so that a
// snapshot may lack one and have a later one.
type Window struct {
	Taken Snapshot
	Seen  Txn  // the last transaction that the snapshot sees
	Torn  bool // the snapshot lacks a row and has a later one of the same key

	missing map[string]struct{} // keys of which the snapshot lacks a row
}

// Take takes a batch of one publication's stream, which begins where the snapshot has everything that lies before.
func (w *Window) Take(f *Filter, b *wal.Batch) error {
	for i := range b.Rows {
		row := &b.Rows[i]
		if !f.divides(row) {
			continue
		}
		sees := w.Taken.Sees(row.Txn.XID)
		if sees {
			w.Seen = TxnOf(row)
		}
		c, err := f.columns(row.Relation)
		if err != nil {
			return err
		}
		if c.of(row, f.Buckets) != f.Next {
			continue
		}
		key := c.text(row)
		switch _, lacks := w.missing[string(key)]; {
		case key == nil: // rows without a key have no order
		case sees:
			w.Torn = w.Torn || lacks
		default:
			if w.missing == nil {
				w.missing = make(map[string]struct{})
			}
			w.missing[string(key)] = struct{}{}
		}
	}
	return nil
}

// History compares what a server streams with what is known.
type History struct {
	Until wal.LSN // everything that commits before it is delivered
	Known Streamed
	last  Txn  // that was taken, before Until
	seen  bool // Known.Seen was taken
}

// Take takes a batch of one publication's stream from the slot's position on.
func (h *History) Take(f *Filter, b *wal.Batch) {
	for i := range b.Rows {
		row := &b.Rows[i]
		switch {
		case !f.divides(row):
		case row.Txn.Commit < h.Until:
			h.last = TxnOf(row)
		case TxnOf(row) == h.Known.Seen:
			h.seen = true
		}
	}
}

// Same reports whether a server has the history that is known. Its slot stands at from, and all of its stream up to
// Known.Seen was taken.
func (h *History) Same(from wal.LSN) bool {
	last := h.Known.Last
	if last.Commit < from { // the stream does not bring it
		last = Txn{}
	}
	return h.last == last && (h.seen || h.Known.Seen.Commit < from)
}
