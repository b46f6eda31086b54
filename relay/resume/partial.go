package resume

import "github.com/cdc-relay/cdc-relay/replication/wal"

// Partial is the beginning of a transaction that was delivered before the stream ended inside it: at
// a row that cannot be read, or because rows had to be dropped. It cannot be confirmed, so each
// session reads it again; without this, each would also send it again. The zero value is none.
type Partial struct {
	Last  wal.Place
	Rows  int     // that the next start sends again
	After wal.LSN // what commits before it was delivered
}

// Unconfirmed counts its rows until the confirmed position is past its commit.
func (p *Partial) Unconfirmed(confirmed wal.LSN) int {
	if confirmed > p.Last.Commit {
		return 0
	}
	return p.Rows
}

// Covers reports whether a row was delivered. Ordinals are the same in every session: a
// change of table or publication ends the relay's work before it reads on.
func (p *Partial) Covers(row *wal.Row) bool {
	id := row.Place()
	return p.Last.Commit != 0 && id.Commit == p.Last.Commit && id.Ordinal <= p.Last.Ordinal
}
