package waiting

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Table is a table as it is now, whose letters are asked for.
type Table struct {
	Name wal.Table
	OID  uint32
	ID   record.IDColumn // of the mapping

	Others   []wal.Table // all tables of the configuration
	Messages []string    // prefixes of the configuration
}

// from is what letters say of their tables.
type from struct {
	table string // schema.name, when the letter was written
	of    deadletter.Table
}

// message reports whether the row is a logical message.
func (f *from) message() bool {
	return f.of.Known && f.of.OID == 0 && strings.HasPrefix(f.table, wal.MessageRelation("", 0).Namespace+".")
}

// may reports whether letters may be of the table. Its name may have been another one, and may be that of
// another table now. Whoever asks keeps rows of which a letter waits, so letters that do not say enough are
// of every table.
func (t *Table) may(f *from) bool {
	is := func(other wal.Table) bool { return f.table == qualified(other) }
	switch {
	case f.message():
		return false
	case f.of.Known && f.of.OID == t.OID, is(t.Name):
		return true
	case f.of.Known:
		return !slices.ContainsFunc(t.Others, is)
	}
	return !slices.ContainsFunc(t.Messages, func(prefix string) bool {
		return f.table == wal.MessageRelation(prefix, 0).Qualified()
	})
}

// has reports whether letters are of the table and name its rows.
func (t *Table) has(f *from) bool { return f.of.Known && f.of.OID == t.OID && f.of.ID == t.ID }

func qualified(t wal.Table) string { return t.Schema + "." + t.Name }
