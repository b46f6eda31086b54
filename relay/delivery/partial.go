package delivery

import (
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// fragment is the beginning of a transaction that was delivered before the stream came
// to a row that cannot be read. The transaction cannot be confirmed, so each try
// brings its beginning again; without this each would send it again, for as long as
// nobody mends the cause.
type fragment struct {
	last deadletter.Row
}

// belong forgets what was delivered, counted and taken apart of another history, in which
// other rows have those positions.
func (m *Memory) belong(to wal.Lineage) {
	if m.of != to {
		m.of, m.part, m.apart = to, fragment{}, 0
		m.Rejected.Forget()
	}
}

// covers says that a row was delivered. Ordinals are the same in every session: a
// change of table or publication ends the relay's work before it reads on.
func (p *fragment) covers(row *wal.Row) bool {
	id := deadletter.RowOf(row)
	return p.last.Commit != 0 && id.Commit == p.last.Commit && id.Seq <= p.last.Seq
}

// ForgetPart forgets that the beginning of a transaction was delivered: another relay may send it again.
func (m *Memory) ForgetPart() { m.part = fragment{} }
