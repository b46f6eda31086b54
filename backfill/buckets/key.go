package buckets

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Most is the greatest number of buckets: the bucket of a key follows from one byte of its hash.
const Most = 256

// Key names the columns that have the key of a table's rows.
type Key struct {
	Column   string
	Fallback string // has the key where Column is NULL or empty; empty: no column has
}

// Text is the SQL text of a row's key; NULL: it has none. Collation C, because another one may call a key empty that
// has bytes.
func (k Key) Text() string {
	text := wal.QuoteIdentifier(k.Column) + "::text"
	if k.Fallback == "" {
		return text
	}
	return "coalesce(nullif(" + text + " COLLATE \"C\", ''), " + wal.QuoteIdentifier(k.Fallback) + "::text)"
}

// SQL is an expression for a row's byte, 0 to 255; a row without a key has 0. With an index on it a bucket is read
// without the rest of the table. PostgreSQL allows the index where the text of the key's type is the same to all
// sessions: not for dates, times and enums.
func (k Key) SQL() string {
	return "coalesce(pg_catalog.get_byte(pg_catalog.decode(pg_catalog.md5(" + k.Text() + "), 'hex'), 0), 0)"
}

// Padded reports whether Column is of type char(n).
func (k Key) Padded(rel *wal.Relation) bool {
	return slices.ContainsFunc(rel.Columns, func(c wal.Column) bool { return c.Name == k.Column && c.Type == bpcharOID })
}

// Condition is the SQL condition of the rows of one of n buckets.
func (k Key) Condition(bucket, n int) string {
	// The bytes b with b*n/256 = bucket.
	first := (bucket*Most + n - 1) / n
	last := ((bucket+1)*Most+n-1)/n - 1
	return fmt.Sprintf("%s BETWEEN %d AND %d", k.SQL(), first, last)
}

// Types of which ::text gives another text than the stream has.
const (
	boolOID   = 16
	bpcharOID = 1042
)

// text is what column::text gives for a value of the stream; nil: NULL.
func text(c *wal.Column, v *wal.Value) []byte {
	if v.Kind != wal.Text {
		return nil
	}
	switch {
	case c.Type == bpcharOID:
		return bytes.TrimRight(v.Data, " ")
	case c.Type == boolOID && string(v.Data) == "t":
		return []byte("true")
	case c.Type == boolOID:
		return []byte("false")
	}
	return v.Data
}

// columns are a key's in one version of a table.
type columns struct{ key, fallback int } // fallback -1: there is none

func (k Key) in(rel *wal.Relation) (columns, error) {
	c := columns{-1, -1}
	for i := range rel.Columns {
		switch rel.Columns[i].Name {
		case k.Column:
			c.key = i
		case k.Fallback:
			c.fallback = i
		}
	}
	switch {
	case c.key < 0:
		return c, missing(rel, k.Column)
	case k.Fallback != "" && c.fallback < 0:
		return c, missing(rel, k.Fallback)
	}
	return c, nil
}

func missing(rel *wal.Relation, column string) error {
	return fmt.Errorf("table %s has no column %q any more, by whose text its rows are divided into buckets", rel.Qualified(), column)
}

// text is that of a row's key; nil: it has none.
func (c columns) text(row *wal.Row) []byte {
	rel := row.Relation
	key := text(&rel.Columns[c.key], &row.Values[c.key])
	if len(key) == 0 && c.fallback >= 0 {
		key = text(&rel.Columns[c.fallback], &row.Values[c.fallback])
	}
	return key
}

// of is the bucket of a row among n.
func (c columns) of(row *wal.Row, n int) int {
	key := c.text(row)
	if key == nil {
		return 0
	}
	sum := md5.Sum(key)
	return int(sum[0]) * n / Most
}
