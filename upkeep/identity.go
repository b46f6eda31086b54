package upkeep

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Identity is how rows and dead letters are matched.
type Identity struct {
	id record.IDColumn // zero: rows have none that a dead letter shows
}

// SQL is the expression of the event id.
func (i Identity) SQL() string {
	if !i.Known() {
		return ""
	}
	return wal.QuoteIdentifier(i.id.Name)
}

// Column is the one of the event id; empty where a dead letter does not show it.
func (i Identity) Column() string { return i.id.Name }

// Known reports whether a dead letter names its row.
func (i Identity) Known() bool { return i.id.Name != "" }

// exact are the types whose text in SQL is what the header id holds. Of char(n) a cast takes the
// blanks away, and bytea is sent as its bytes.
var exact = []string{"uuid", "text", "varchar", "int2", "int4", "int8", "numeric"}

// identify decides whether the header id of a table's records is a column's text, as SQL prints it too. Where
// it is not, a dead letter of the table may be any row's.
func identify(id record.IDColumn, rel *wal.Relation) Identity {
	if !slices.ContainsFunc(rel.Columns, func(c wal.Column) bool { return c.Name == id.Name && slices.Contains(exact, c.TypeName) }) {
		return Identity{}
	}
	return Identity{id}
}
