package upkeep

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
)

// Identity is how rows and dead letters are matched.
type Identity struct {
	column string // of the event id; empty: rows have none that a dead letter shows
}

// SQL is the expression of the event id.
func (i Identity) SQL() string {
	if i.column == "" {
		return ""
	}
	return wal.QuoteIdentifier(i.column)
}

// Column is the one of the event id; empty where a dead letter does not show it.
func (i Identity) Column() string { return i.column }

// Known reports whether a dead letter names its row.
func (i Identity) Known() bool { return i.column != "" }

// exact are the types whose text in SQL is what the header id holds. Of char(n) a cast takes the
// blanks away, and bytea is sent as its bytes.
var exact = []string{"uuid", "text", "varchar", "int2", "int4", "int8", "numeric"}

// identify decides whether the header id of a table's records is a column's text. Where it is
// not, a dead letter of the table may be any row's.
func identify(m *router.Mapping, e *router.Explanation, rel *wal.Relation) Identity {
	column := e.Roles["id"]
	replaced := slices.ContainsFunc(m.Headers, func(h router.HeaderMapping) bool { return strings.EqualFold(h.Name, "id") })
	if m.Connector != nil || replaced || e.Roles["id where that is empty"] != "" {
		return Identity{}
	}
	if !slices.ContainsFunc(rel.Columns, func(c wal.Column) bool { return c.Name == column && slices.Contains(exact, c.TypeName) }) {
		return Identity{}
	}
	return Identity{column}
}
