package delivery

import "github.com/cdc-relay/cdc-relay/replication/wal"

// partialTransaction is the beginning of a transaction that was delivered before the stream ended
// inside it: at a row that cannot be read, or because rows had to be dropped. It cannot be
// confirmed, so each session reads it again; without this, each would also send it again.
type partialTransaction struct {
	last  wal.Place
	rows  int     // that the next start sends again
	after wal.LSN // what commits before it was delivered
}

// unconfirmed counts its rows until the confirmed position is past its commit.
func (p partialTransaction) unconfirmed(confirmed wal.LSN) int {
	if confirmed > p.last.Commit {
		return 0
	}
	return p.rows
}

// forget drops what belongs to another history: in this one the same positions are other rows'.
// If the slot went back, earlier rows are sent again, and the partial transaction has to follow them.
func (s *Shared) forget(to wal.Lineage, start wal.LSN) {
	if start < s.partial.after {
		s.ForgetPartial()
	}
	if s.history != to {
		s.history, s.partial, s.isolated = to, partialTransaction{}, 0
		s.rejections = newRejections()
		s.Rejected.Forget()
	}
}

// covers reports whether a row was delivered. Ordinals are the same in every session: a
// change of table or publication ends the relay's work before it reads on.
func (p *partialTransaction) covers(row *wal.Row) bool {
	id := row.Place()
	return p.last.Commit != 0 && id.Commit == p.last.Commit && id.Ordinal <= p.last.Ordinal
}

// ForgetPartial forgets that the beginning of a transaction was delivered: another relay may send
// it again.
func (s *Shared) ForgetPartial() { s.partial = partialTransaction{} }
