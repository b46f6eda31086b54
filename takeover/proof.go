package takeover

import (
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
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
//  3. The row itself, when the position is one of an insert. Rows of one COPY share
//     an LSN, so only the first row at that LSN is taken for it: a second one may
//     not have been sent, and comes again.
//
// A row's LSN says nothing about other transactions: one that commits later may
// have begun long before.
type Proof struct {
	p       Position
	ordinal uint64 // of the row that rule 3 took; zero: none yet
	skipped int64
}

// NewProof is a proof by one position.
func NewProof(p Position) *Proof { return &Proof{p: p} }

// Delivered tells whether a row is proven to be in Kafka. commit is where its
// transaction's commit record begins, ordinal its place in the transaction.
func (f *Proof) Delivered(commit pglogrepl.LSN, xid uint32, lsn pglogrepl.LSN, ordinal uint64) bool {
	switch {
	case f.p.Commit != 0 && commit < f.p.Commit:
	case xid != f.p.XID || f.p.XID == 0 || commit < f.p.LSN:
		return false
	case lsn < f.p.LSN:
	case lsn == f.p.LSN && f.p.Event == "INSERT" && (f.ordinal == 0 || f.ordinal == ordinal):
		f.ordinal = ordinal
	default:
		return false
	}
	f.skipped++
	return true
}

// Skipped counts the rows that were proven.
func (f *Proof) Skipped() int64 { return f.skipped }

// Witness looks in the log for what a position says is there. A position is only
// numbers: one of another database, or of this one before a restore or a failover
// that lost something, looks just as good. So nothing is proven before the log
// showed the stored row at its place: the same transaction's number at the same
// LSN.
type Witness struct{ p Position }

// NewWitness is for one position.
func NewWitness(p Position) *Witness { return &Witness{p} }

// Row tells whether a row of the log is the stored one, or of the transaction that
// ends where the position of a heartbeat says. past says that no later row can be.
func (w *Witness) Row(commit, end pglogrepl.LSN, xid uint32, lsn pglogrepl.LSN) (found, past bool) {
	if w.p.Event == "INSERT" {
		return xid == w.p.XID && lsn == w.p.LSN, commit > w.p.LSN && xid != w.p.XID
	}
	return w.p.Commit != 0 && end == w.p.Commit, commit > w.p.Commit
}

// Through tells whether the log up to a position holds the end that a heartbeat's
// position names.
func (w *Witness) Through(lsn pglogrepl.LSN) bool {
	return w.p.Event != "INSERT" && w.p.Commit != 0 && lsn == w.p.Commit
}

// State is what the server says, as far as a change-over depends on it.
type State struct {
	Confirmed pglogrepl.LSN // the slot's
	WALEnd    pglogrepl.LSN

	// Ahead says that the connector's driver confirms positions on its own
	// (lsn.flush.mode=connector_and_driver), so that the slot may be ahead.
	Ahead bool
}

// Verdict is what a position is good for on a slot.
type Verdict struct {
	Whole bool // the slot delivers transactions again that are proven as a whole
	Part  bool // and the stored row's transaction
}

// Any says that there is something to filter.
func (v Verdict) Any() bool { return v.Whole || v.Part }

// ErrSnapshot says that rows from before the slot are still missing.
var ErrSnapshot = errors.New("the connector was reading existing rows (snapshot) and had not finished; let it finish, then change over")

// Judge compares a position with the slot. Its errors forbid the change-over.
func Judge(p *Position, s State) (Verdict, error) {
	switch {
	case p.Snapshot:
		return Verdict{}, ErrSnapshot
	case p.Last() > s.WALEnd:
		return Verdict{}, fmt.Errorf("the position %s lies ahead of the server's log, which ends at %s: it is from another server, or from before a restore", p.Last(), s.WALEnd)
	case s.Confirmed > p.Last() && !s.Ahead:
		return Verdict{}, fmt.Errorf("the slot at %s is ahead of the connector's position %s: either the change-over was done before, and `cdc-relay run` goes on, or somebody moved the slot, and rows in between are gone from it unless Debezium sent them; when the relay moved it before the connector got it back, --no-offsets goes on without the position", s.Confirmed, p.Last())
	}
	// A row may begin where the transaction before it, or the slot's position, ends.
	within := p.Event != "BEGIN" && p.Event != "COMMIT"
	return Verdict{Whole: p.Commit > s.Confirmed, Part: within && p.LSN >= max(p.Commit, s.Confirmed)}, nil
}
