package snapshot

import (
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// TimeColumn is the column with the time of a row: the one that is named, or one that has the
// time of creation by its name. False: there is none.
func (s *Shape) TimeColumn(named string) (Column, bool, error) {
	if named == "" {
		c, found := s.written()
		return c, found, nil
	}
	c, found := s.column(named)
	switch {
	case !found:
		return c, false, fmt.Errorf("there is no column %q; the columns are %s", named, s.names())
	case !c.timed():
		return c, false, fmt.Errorf("column %s has type %s; allowed: a column of type timestamp or timestamptz", named, c.Type)
	}
	return c, true, nil
}

func (c *Column) timed() bool { return strings.HasPrefix(c.Type, "timestamp") }

// Within is the condition that a row is of a time, from since on and before until; the zero time
// bounds nothing. A column without time zone is read as UTC.
func (c *Column) Within(since, until time.Time) string {
	literal := func(at time.Time) string {
		text := postgres.QuoteLiteral(at.UTC().Format("2006-01-02 15:04:05.999999999+00")) + "::timestamptz"
		if !strings.HasSuffix(c.Type, "with time zone") {
			text = "(" + text + " AT TIME ZONE 'UTC')"
		}
		return text
	}
	var parts []string
	if !since.IsZero() {
		parts = append(parts, wal.QuoteIdentifier(c.Name)+" >= "+literal(since))
	}
	if !until.IsZero() {
		parts = append(parts, wal.QuoteIdentifier(c.Name)+" < "+literal(until))
	}
	return strings.Join(parts, " AND ")
}

// Now is when the transaction began, in the terms of the column.
func (c *Column) Now() string {
	if strings.HasSuffix(c.Type, "with time zone") {
		return "pg_catalog.now()"
	}
	return "(pg_catalog.now() AT TIME ZONE 'UTC')"
}
