package retention

import (
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/retention/export"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

// Then is what happens to a row that is due.
type Then string

// The values of retention.then.
const (
	None    Then = "none"
	Delete  Then = "delete"
	Archive Then = "archive"

	// Export writes rows to files before they are deleted.
	Export Then = "export"

	// Whole partitions, and of a default partition the rows.
	DropPartition   Then = "drop_partition"
	DetachPartition Then = "detach_partition"
)

// Partitions reports whether whole ones go.
func (t Then) Partitions() bool { return t == DropPartition || t == DetachPartition }

// DefaultBy is the column that says how old a row is, unless a policy names another.
const DefaultBy = "created_at"

// Policy is what is to become of the old rows of one table.
type Policy struct {
	upkeep.Target
	Keep    time.Duration
	By      string // column
	Where   string // SQL condition beside the age; may be empty
	Then    Then
	Archive wal.Table // with Then Archive
	Export  Files     // with Then Export
	Blocks  bool      // rows that are due are found without an index
	Ahead   int       // partitions to be made before they are needed, where whole ones go
}

// Files is where and how rows are written before they are deleted.
type Files struct {
	To     string // as the configuration has it
	Folder string // a directory; empty: it is a bucket
	export.Place
	Slice time.Duration
}

// of is the policy for one of the table's partitions.
func (p *Policy) of(leaf wal.Table) *Policy {
	one := *p
	one.Table = leaf
	return &one
}

// archiveTable is where rows move to; nil: nowhere.
func (p *Policy) archiveTable() *wal.Table {
	if p.Then != Archive {
		return nil
	}
	return &p.Archive
}

// interval is how old a row has to be, as SQL.
func (p *Policy) interval() string {
	return fmt.Sprintf("interval '%d seconds'", int64(p.Keep/time.Second))
}

// condition selects the rows that are due. by is the column of that name.
func (p *Policy) condition(by maintenance.Column) string {
	condition := fmt.Sprintf("%s < %s - %s", wal.QuoteIdentifier(by.Name), upkeep.Now(by), p.interval())
	if p.Then == Export { // whole slices only
		condition = fmt.Sprintf("%[1]s < %[2]s AND isfinite(%[1]s)", wal.QuoteIdentifier(by.Name), p.slice(by, upkeep.Now(by)+" - "+p.interval()))
	}
	if p.Where != "" {
		condition += " AND (" + p.Where + "\n)" // a comment at the end takes no parenthesis
	}
	return condition
}

// slice is the beginning of the slice that a time is in, as SQL.
func (p *Policy) slice(by maintenance.Column, at string) string {
	origin := "timestamp with time zone '2000-01-01 00:00:00+00'"
	if strings.HasSuffix(by.Type, "without time zone") {
		origin = "timestamp without time zone '2000-01-01 00:00:00'"
	}
	return fmt.Sprintf("pg_catalog.date_bin(interval '%d seconds', %s, %s)", int64(p.Export.Slice/time.Second), at, origin)
}

// Age is the age as a configuration has it.
func (p *Policy) Age() string {
	const day = 24 * time.Hour
	text, rest := "", p.Keep
	for _, unit := range []struct {
		of   time.Duration
		sign string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := rest / unit.of; n > 0 {
			text += fmt.Sprintf("%d%s", n, unit.sign)
			rest %= unit.of
		}
	}
	return text
}

// dated reports whether a column says when.
func dated(c maintenance.Column) bool { return strings.HasPrefix(c.Type, "timestamp") && !c.Generated }
