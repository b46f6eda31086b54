package snapshot

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Column is a column by which rows can be ordered.
type Column struct {
	Name     string
	Type     string // as format_type prints it
	Nullable bool
	Sequence bool   // its values are drawn from a sequence
	Default  string // expression; empty: none, or the column is generated
	Number   string // attnum: a renamed column keeps it

	Collation string // as SQL names it; empty: the type's own
}

// literal is a value of the column, which compares as the column does.
func (c *Column) literal(value string) string {
	text := postgres.QuoteLiteral(value) + "::" + c.Type
	if c.Collation != "" {
		text += " COLLATE " + c.Collation
	}
	return text
}

// Shape is what is known of a table for choosing an order.
type Shape struct {
	Columns []Column
	Keys    [][]string // columns of each unique key without NULLs; the primary key is first
}

// Basis says what an order says about the order of writing.
type Basis string

// The bases.
const (
	Sequence Basis = "sequence" // in which numbers were drawn
	Time     Basis = "time"     // in which transactions began, or clocks stood
	Key      Basis = "key"      // none: by a key alone
	Given    Basis = "given"    // the operator named it
	Place    Basis = "place"    // none: by the place in the table
)

// Order is how the rows of a table follow each other.
type Order struct {
	By    []Column // empty: by the place in the table
	Basis Basis
	Ranks int // so many of By order the rows; the others only make the order total

	// Total: no two rows are equal in it, and no row changes its place. Only then can a
	// reading be taken up after a row. A place in the table is none: an update moves the row.
	Total bool
}

// Tuple is the values of a row in the columns of an order; nil stands for NULL.
type Tuple = []*string

// timeNames are those of columns with the time of a row's writing, the likeliest first. A timeout is none.
var timeNames = []*regexp.Regexp{regexp.MustCompile(`(?i)creat`), regexp.MustCompile(`(?i)occur|insert`), regexp.MustCompile(`(?i)^time(stamp|_|$)`)}

// written is the column with the time of a row's writing, as far as names tell.
func (s *Shape) written() (Column, bool) {
	for _, name := range timeNames {
		for _, c := range s.Columns {
			if c.timed() && name.MatchString(c.Name) {
				return c, true
			}
		}
	}
	return Column{}, false
}

// Choose takes the columns that were given, else the first of: a key that is drawn from a
// sequence; a column with the time of writing; a key of any kind; the place in the table. The
// columns of a unique key make it total.
func (s *Shape) Choose(given []string) (Order, error) {
	o := Order{Basis: Given}
	for _, name := range given {
		c, ok := s.column(name)
		if !ok {
			return o, fmt.Errorf("there is no column %q; the columns are %s", name, s.names())
		}
		if slices.ContainsFunc(o.By, func(b Column) bool { return b.Name == name }) {
			return o, fmt.Errorf("column %q is named twice", name)
		}
		o.By = append(o.By, c)
	}
	if len(given) == 0 {
		o.By, o.Basis = s.first()
	}
	o.Ranks = len(o.By)
	for _, key := range s.Keys {
		if o.covers(key) {
			o.Total = true
			return o, nil
		}
	}
	if len(s.Keys) == 0 {
		return o, nil
	}
	for _, name := range s.Keys[0] {
		if !o.has(name) {
			c, ok := s.column(name)
			if !ok {
				return o, errors.New("the catalog names a key of a column that the table does not have")
			}
			o.By = append(o.By, c)
		}
	}
	o.Total = true
	return o, nil
}

// first is the order that nobody named, before a key makes it total.
func (s *Shape) first() ([]Column, Basis) {
	for _, key := range s.Keys {
		if c, ok := s.column(key[0]); ok && len(key) == 1 && c.Sequence {
			return []Column{c}, Sequence
		}
	}
	if c, found := s.written(); found {
		return []Column{c}, Time
	}
	if len(s.Keys) > 0 {
		return nil, Key
	}
	return nil, Place
}

func (s *Shape) column(name string) (Column, bool) {
	i := slices.IndexFunc(s.Columns, func(c Column) bool { return c.Name == name })
	if i < 0 {
		return Column{}, false
	}
	return s.Columns[i], true
}

func (s *Shape) names() string {
	list := make([]string, len(s.Columns))
	for i, c := range s.Columns {
		list[i] = c.Name
	}
	return strings.Join(list, ", ")
}

func (o *Order) has(name string) bool {
	return slices.ContainsFunc(o.By, func(c Column) bool { return c.Name == name })
}

func (o *Order) covers(key []string) bool {
	return len(key) > 0 && !slices.ContainsFunc(key, func(name string) bool { return !o.has(name) })
}

// Names are the columns.
func (o *Order) Names() []string {
	list := make([]string, len(o.By))
	for i, c := range o.By {
		list[i] = c.Name
	}
	return list
}

// Describe says where a row stands, for messages.
func (o *Order) Describe(at Tuple) string {
	if len(o.By) == 0 || len(at) != len(o.By) {
		return "a row without a place that lasts"
	}
	parts := make([]string, len(o.By))
	for i, c := range o.By {
		value := "NULL"
		if at[i] != nil {
			value = *at[i]
		}
		parts[i] = c.Name + " = " + value
	}
	return strings.Join(parts, ", ")
}

// fields are the columns as a SELECT has them after others: with a comma before each.
func (o *Order) fields() string {
	var b strings.Builder
	for _, c := range o.By {
		b.WriteString(", " + wal.QuoteIdentifier(c.Name))
	}
	return b.String()
}

// OrderBy is the clause that has rows in the order.
func (o *Order) OrderBy() string { return o.sorted(false) }

// LastFirst is the clause that has the last rows come first.
func (o *Order) LastFirst() string {
	if len(o.By) == 0 {
		return " ORDER BY ctid DESC"
	}
	return o.sorted(true)
}

// sorted is the clause ORDER BY, or its opposite. NULLs come first. That is said only of columns
// that may have one: an index of others has no place for NULLs, and would not be used.
func (o *Order) sorted(backwards bool) string {
	if len(o.By) == 0 {
		return " ORDER BY ctid"
	}
	parts := make([]string, len(o.By))
	for i, c := range o.By {
		parts[i] = wal.QuoteIdentifier(c.Name)
		if backwards {
			parts[i] += " DESC"
		}
		switch {
		case c.Nullable && backwards:
			parts[i] += " NULLS LAST"
		case c.Nullable:
			parts[i] += " NULLS FIRST"
		}
	}
	return " ORDER BY " + strings.Join(parts, ", ")
}

// later is the condition that a row comes after a place. It is never NULL.
func (o *Order) later(at Tuple) string {
	plain := true
	names, values := make([]string, len(o.By)), make([]string, len(o.By))
	for i, c := range o.By {
		plain = plain && !c.Nullable && at[i] != nil
		names[i] = wal.QuoteIdentifier(c.Name)
		if at[i] != nil {
			values[i] = c.literal(*at[i])
		}
	}
	if plain { // which an index can answer
		return "(" + strings.Join(names, ", ") + ") > (" + strings.Join(values, ", ") + ")"
	}
	var either []string
	var same strings.Builder // in all columns so far
	for i := range o.By {
		greater, equal := names[i]+" > "+values[i], names[i]+" = "+values[i]
		if at[i] == nil {
			greater, equal = names[i]+" IS NOT NULL", names[i]+" IS NULL"
		}
		either = append(either, "("+same.String()+greater+")")
		same.WriteString(equal + " AND ")
	}
	return "coalesce(" + strings.Join(either, " OR ") + ", false)"
}

// at is the condition that a row has a place. It is never NULL.
func (o *Order) at(place Tuple) string {
	same := make([]string, len(o.By))
	for i, c := range o.By {
		value := "NULL"
		if place[i] != nil {
			value = c.literal(*place[i])
		}
		same[i] = wal.QuoteIdentifier(c.Name) + " IS NOT DISTINCT FROM " + value
	}
	return strings.Join(same, " AND ")
}

// between is the condition that a row comes after one place and not after another. A nil place
// bounds nothing. In an order that is not total the rows at the first place are in the range too:
// only some of them may have been read.
func (o *Order) between(after, upTo Tuple) string {
	condition := "true"
	if len(o.By) > 0 && len(after) == len(o.By) {
		condition = o.later(after)
		if !o.Total {
			condition = "(" + condition + " OR " + o.at(after) + ")"
		}
	}
	if len(o.By) > 0 && len(upTo) == len(o.By) {
		condition += " AND NOT " + o.later(upTo)
	}
	return condition
}
