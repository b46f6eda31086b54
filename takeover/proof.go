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
	Whole bool // the slot delivers transactions that are proven as a whole
	Part  bool // and the stored row's transaction again
	Until pglogrepl.LSN
}

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
		return Verdict{}, fmt.Errorf("the slot at %s is ahead of the connector's position %s: either the change-over was done before, and `cdc-relay run` goes on, or somebody moved the slot, and rows in between are gone from it unless Debezium sent them", s.Confirmed, p.Last())
	}
	v := Verdict{Whole: p.Commit > s.Confirmed, Part: p.LSN > max(p.Commit, s.Confirmed), Until: p.Last()}
	return v, nil
}
