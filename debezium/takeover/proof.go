package takeover

import (
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Proof tells which rows of the log a position proves to be in Kafka. One
// goroutine asks it, in the order of the stream; a session that begins again may
// ask about rows again.
//
// Three rules, and nothing else:
//
//  1. A transaction whose commit record begins before Position.Commit came whole
//     before the stored row. So did every earlier one.
//  2. Of the stored row's own transaction, rows that lie before it in the log came
//     before it.
//  3. The row itself, when the position is one of an insert or a logical message. Rows
//     of one COPY share an LSN, so only the first row at that LSN is taken for it: a
//     second one may not have been sent, and comes again.
//
// A row's LSN says nothing about other transactions: one that commits later may
// have begun long before.
type Proof struct {
	p       Position
	ordinal uint64 // of the row that rule 3 took; zero: none yet
}

// NewProof is a proof by one position.
func NewProof(p Position) *Proof { return &Proof{p: p} }

// Delivered reports whether a row is proven to be in Kafka. commit is where its
// transaction's commit record begins, ordinal its place in the transaction.
func (f *Proof) Delivered(commit wal.LSN, xid uint32, lsn wal.LSN, ordinal uint64) bool {
	switch {
	case f.p.Commit != 0 && commit < f.p.Commit:
	case xid != f.p.XID || f.p.XID == 0 || commit < f.p.LSN:
		return false
	case lsn < f.p.LSN:
	case lsn == f.p.LSN && (f.p.Event == "INSERT" || f.p.Event == "MESSAGE") && (f.ordinal == 0 || f.ordinal == ordinal):
		f.ordinal = ordinal
	default:
		return false
	}
	return true
}

// Comparison looks in the log for what a position says is there. A position is only
// numbers: one of another database, of this one before a restore or a failover that
// lost something, or one written by hand, looks just as good. So nothing is proven
// before the log showed the stored row at its place, the same transaction's number
// at the same LSN, and that its transaction does not end before Position.Commit,
// which is the end of an earlier one. A primary that lost the end of its log gives the
// same number again, and may do so at the same place; hence the commit's time too.
type Comparison struct {
	p           Position
	ended       bool // a transaction ends at Position.Commit
	contradicts bool
	another     time.Time // when the transaction of that number committed, if not when the position says
}

// NewComparison is for one position.
func NewComparison(p Position) *Comparison {
	// Only a row or a beginning may lie before the end of another transaction.
	return &Comparison{p: p, contradicts: p.Event == "COMMIT" && p.LSN < p.Commit}
}

// Dated takes the commit time of a row's transaction. Call it before Row.
func (w *Comparison) Dated(xid uint32, at time.Time) {
	if xid == w.p.XID && xid != 0 && !w.p.Time.IsZero() && at.UnixMicro() != w.p.Time.UnixMicro() {
		w.another = at
	}
}

// Row reports whether a row of the log proves the position: it is the stored one, or
// of the transaction that ends where the position says. past says that no later row
// can.
func (w *Comparison) Row(commit, end wal.LSN, xid uint32, lsn wal.LSN) (found, past bool) {
	own := xid == w.p.XID && xid != 0
	switch inside := w.p.Event == "INSERT" || w.inside(); {
	case w.contradicts, !w.another.IsZero():
	case own && inside && commit < w.p.Commit:
		w.contradicts = true
	case w.p.Event == "INSERT":
		return own && lsn == w.p.LSN, commit > w.p.LSN && commit >= w.p.Commit && !own // its own may commit after others that began later
	case own && lsn == w.p.LSN && w.p.change(): // a slot that is confirmed up to Position.Commit shows no more of it
		return true, false
	case w.p.Commit != 0 && end == w.p.Commit:
		w.ended = true
		return !inside, false
	case inside && w.ended:
		return own, false
	default:
		return false, commit >= w.p.Commit && (commit > w.p.LSN && !own || !w.p.change())
	}
	return false, true
}

// inside reports whether the position lies before Position.Commit, so that its own
// transaction has to end after it: only then the end alone is no proof.
func (w *Comparison) inside() bool { return w.p.LSN < w.p.Commit }

// within reports whether the position is one of a row or a message, which lies inside its
// transaction.
func (p *Position) within() bool { return p.Event != "BEGIN" && p.Event != "COMMIT" }

// change reports whether the position names what happened there: a change or a message.
func (p *Position) change() bool { return p.within() && p.Event != "" }

// Through reports whether the log up to a position, where a transaction ends, proves
// what no row did.
func (w *Comparison) Through(lsn wal.LSN) bool {
	if w.contradicts || !w.another.IsZero() || w.p.Event == "INSERT" || w.p.Commit == 0 || lsn != w.p.Commit {
		return false
	}
	w.ended = true
	return !w.inside()
}

// Missing explains why nothing was found.
func (w *Comparison) Missing() string {
	switch {
	case !w.another.IsZero():
		return fmt.Sprintf("transaction %d of the slot committed at %s, and that of the position (ts_usec) at %s", w.p.XID, w.another.UTC().Format(time.RFC3339Nano), w.p.Time.Format(time.RFC3339Nano))
	case w.contradicts, !w.another.IsZero():
		return fmt.Sprintf("the position contradicts itself or the slot: %s of transaction %d lies before the end of an earlier transaction, lsn_commit %s, and so does that transaction's own end", w.p.LSN, w.p.XID, w.p.Commit)
	case w.p.Event == "INSERT" || w.ended:
		return fmt.Sprintf("the slot has no row at %s in transaction %d", w.p.LSN, w.p.XID)
	}
	if w.p.Commit == 0 {
		return fmt.Sprintf("the position names neither an inserted row nor the end of a transaction (messageType %q, no lsn_commit)", w.p.Event)
	}
	return fmt.Sprintf("no transaction of the slot ends at %s", w.p.Commit)
}

// State is what the server says, as far as a takeover depends on it.
type State struct {
	Confirmed wal.LSN // the slot's
	WALEnd    wal.LSN

	// Ahead says that the connector's driver confirms positions on its own
	// (lsn.flush.mode=connector_and_driver), so that the slot may be ahead.
	Ahead bool
}

// Verdict is what a position is good for on a slot.
type Verdict struct {
	Whole bool // the slot delivers transactions again that are proven as a whole
	Part  bool // and the stored row's transaction
}

// Any reports whether there is something to filter.
func (v Verdict) Any() bool { return v.Whole || v.Part }

// ErrSnapshot means that rows from before the slot are still missing.
var ErrSnapshot = errors.New("the connector was reading existing rows (snapshot) and had not finished; let it finish, then change over")

// ComparePosition compares a position with the slot. Its errors forbid the takeover.
func ComparePosition(p *Position, s State) (Verdict, error) {
	switch {
	case p.Snapshot:
		return Verdict{}, ErrSnapshot
	case p.Last() > s.WALEnd:
		return Verdict{}, fmt.Errorf("the position %s lies ahead of the server's log, which ends at %s: it is from another server, or from before a restore", p.Last(), s.WALEnd)
	case s.Confirmed > p.Last() && !s.Ahead:
		return Verdict{}, fmt.Errorf("the slot at %s is ahead of the connector's position %s: either the takeover was done before, and `cdc-relay run` goes on, or somebody moved the slot, and rows in between are gone from it unless Debezium sent them; when the relay moved it before the connector got it back, --no-offsets goes on without the position", s.Confirmed, p.Last())
	}
	// The row's transaction ends after both of its positions, so the slot brings it again
	// from either: also where the row lies before the end of one that overlaps it.
	return Verdict{Whole: p.Commit > s.Confirmed, Part: p.within() && s.Confirmed <= max(p.LSN, p.Commit)}, nil
}
