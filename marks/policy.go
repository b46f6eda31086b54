package marks

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

// Now is the value that is the time of marking.
const Now = "now"

// Policy is which column of one table marks delivered rows.
type Policy struct {
	upkeep.Target
	Column    string // empty: rows get no mark
	Value     string // Now, or a literal; empty: what the column's type suggests
	Every     time.Duration
	BatchRows int

	Error    string // column that says why a row was rejected; empty: none does
	Attempts string // with Error: column that counts how often; empty: none does
}

// of is the policy for one of the table's partitions.
func (p *Policy) of(leaf wal.Table) *Policy {
	one := *p
	one.Table = leaf
	return &one
}

// setting is how a column is set, which rows it is not set in, and which ones have the mark.
type setting struct{ unmarked, set, marked string }

var literal = regexp.MustCompile(`^'((?:[^']|'')*)'(::|$)`)

// setting finds out how to set a column. It means the same rows as a backfill that sends the
// unpublished ones.
func (p *Policy) setting(columns []maintenance.Column) (setting, error) {
	i := slices.IndexFunc(columns, func(c maintenance.Column) bool { return c.Name == p.Column })
	if i < 0 {
		return setting{}, p.Mistake("column", "allowed: "+strings.Join(fit(columns), ", "), "table %s has no column %q", p.Table, p.Column)
	}
	c := columns[i]
	if c.Generated {
		return setting{}, p.Mistake("column", "name an ordinary column", "column %q of table %s is generated", p.Column, p.Table)
	}
	quoted := wal.QuoteIdentifier(c.Name)
	switch kind(c) {
	case instant:
		if p.Value != "" && p.Value != Now {
			return setting{}, p.Mistake("value", "allowed for a timestamp: now", "column %q of table %s is %s, and takes no %q", p.Column, p.Table, c.Type, p.Value)
		}
		if c.NotNull {
			return setting{}, p.Mistake("column", "allow NULL in it: NULL marks a row that is not published", "column %q of table %s is NOT NULL: a row without a mark cannot be told from others", p.Column, p.Table)
		}
		return setting{quoted + " IS NULL", quoted + " = " + upkeep.Now(c), quoted + " IS NOT NULL"}, nil
	case flag:
		if p.Value != "" && p.Value != "true" {
			return setting{}, p.Mistake("value", "allowed for a boolean: true", "column %q of table %s is boolean, and takes no %q", p.Column, p.Table, p.Value)
		}
		if c.NotNull { // the form that partial indexes have
			return setting{"NOT " + quoted, quoted + " = true", quoted}, nil
		}
		return setting{quoted + " IS NOT TRUE", quoted + " = true", quoted}, nil
	case text:
		return p.status(c, quoted)
	case other:
	}
	return setting{}, p.Mistake("column", "allowed: a timestamp, a boolean, or text or an enum with a default", "column %q of table %s is %s", p.Column, p.Table, c.Type)
}

// status is for a column whose default is what an unpublished row has.
func (p *Policy) status(c maintenance.Column, quoted string) (setting, error) {
	found := literal.FindStringSubmatch(c.Default)
	if found == nil {
		return setting{}, p.Mistake("column", "give it the default that an unpublished row has: ALTER TABLE "+p.Table.SQL()+" ALTER COLUMN "+quoted+" SET DEFAULT 'pending'",
			"column %q of table %s has no text as its default, so nothing says which rows are not published", p.Column, p.Table)
	}
	unpublished := strings.ReplaceAll(found[1], "''", "'")
	switch p.Value {
	case "", Now:
		return setting{}, p.Mistake("value", "write what a published row has there, for example sent", "column %q of table %s is %s, and its value has to be given", p.Column, p.Table, c.Type)
	case unpublished:
		return setting{}, p.Mistake("value", "write what a published row has there", "%q is the default of column %q of table %s, which an unpublished row has", p.Value, p.Column, p.Table)
	}
	is := quoted + " = " + postgres.QuoteLiteral(p.Value)
	return setting{quoted + " = " + postgres.QuoteLiteral(unpublished), is, is}, nil
}

type columnKind int

const (
	other columnKind = iota
	instant
	flag
	text
)

// kind is what a column can be marked with. An enum has the name of its type.
func kind(c maintenance.Column) columnKind {
	switch {
	case strings.HasPrefix(c.Type, "timestamp"):
		return instant
	case c.Type == "boolean":
		return flag
	case c.Type == "text", strings.HasPrefix(c.Type, "character"), strings.HasPrefix(c.Type, `"char"`), literal.MatchString(c.Default):
		return text
	}
	return other
}

// fit are the columns that can be marked.
func fit(columns []maintenance.Column) (names []string) {
	for _, c := range columns {
		if k := kind(c); !c.Generated && (k == instant && !c.NotNull || k == flag || k == text && literal.MatchString(c.Default)) {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return []string{"a column that the table has yet to get, as published_at timestamptz"}
	}
	return names
}
