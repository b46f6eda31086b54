package record

import (
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Notice is something that a connector made of rows and that is worth a warning. It holds no value of a row.
type Notice struct {
	Table  string // schema.name
	Column string // empty: the whole row
	Text   string
	Rows   int64
	Commit wal.LSN // of the first row's transaction
}

// maxNotices bounds what is kept between two calls of Take.
const maxNotices = 1000

// Notices gathers them by table, column and text.
type Notices struct {
	list []Notice
	last []wal.Place // parallel to list: a row is counted once, however often its column is read
}

// Add notes that a text is about a row.
func (n *Notices) Add(row *wal.Row, column, text string) {
	if row == nil || row.Relation == nil || row.Txn == nil {
		return
	}
	at, table := row.Place(), row.Relation.Qualified()
	for i := range n.list {
		if have := &n.list[i]; have.Table == table && have.Column == column && have.Text == text {
			if n.last[i] != at {
				n.last[i] = at
				have.Rows++
			}
			return
		}
	}
	if len(n.list) < maxNotices {
		n.list = append(n.list, Notice{Table: table, Column: column, Text: text, Rows: 1, Commit: row.Txn.Commit})
		n.last = append(n.last, at)
	}
}

// Take gives what was noticed since the last call.
func (n *Notices) Take() []Notice {
	list := n.list
	*n = Notices{}
	return list
}
