package snapshot

import (
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// PublishedColumn is a column by which a polling publisher remembers what it has published.
type PublishedColumn struct {
	Column string
	Where  string // the condition that a row is not published
	Set    string // the value of a published row, as SQL; empty: it has to be looked up (a status)

	// Sure: a row that does not meet the condition is published. A status may also say that the
	// publisher failed, or was in the middle of it.
	Sure bool
}

var (
	markTimes = []string{"published_at", "processed_at", "sent_at", "dispatched_at", "processed_on", "published_on", "sent_on", "dispatched_on"}
	markFlags = []string{"published", "processed", "sent", "dispatched"}
	literal   = regexp.MustCompile(`^'((?:[^']|'')*)'::`)

	attemptColumns = []string{"retry_count", "retries", "retry_attempts", "attempts", "attempt_count", "publish_attempts", "delivery_attempts"}
	errorColumns   = []string{"last_error", "error", "error_message", "publish_error"}

	// PublishedStatuses are the names that a status of published rows has.
	PublishedStatuses = []string{"published", "processed", "sent", "dispatched", "delivered", "done", "completed", "success"}
)

// PublishedColumn is the first of those that a person named, and where nobody named any the only one. False:
// there is none that is known, or there are several, and nobody knows which of them a publisher goes by.
func (s *Shape) PublishedColumn(named ...string) (PublishedColumn, bool) {
	all := s.PublishedColumns()
	if len(named) > 0 {
		all = slices.DeleteFunc(all, func(c PublishedColumn) bool { return c.Column != named[0] })
	}
	if len(all) != 1 {
		return PublishedColumn{}, false
	}
	return all[0], true
}

// PublishedColumns are all that there may be, of which a publisher may use any. A status is taken
// for one when its default says what an unpublished row has. A time that a new row has already is none, nor a
// flag that is set from the beginning: rows that nobody has published would count as published.
func (s *Shape) PublishedColumns() (all []PublishedColumn) {
	for _, c := range s.Columns {
		name, column := strings.ToLower(c.Name), wal.QuoteIdentifier(c.Name)
		switch {
		case slices.Contains(markTimes, name) && strings.HasPrefix(c.Type, "timestamp") && c.Nullable && (c.Default == "" || strings.HasPrefix(c.Default, "NULL")):
			all = append(all, PublishedColumn{c.Name, column + " IS NULL", "pg_catalog.now()", true})
		case slices.Contains(markFlags, name) && c.Type == "boolean" && c.Default != "true":
			all = append(all, PublishedColumn{c.Name, column + " IS NOT TRUE", "true", true})
		case name == "status":
			if unpublished := literal.FindString(c.Default); unpublished != "" {
				all = append(all, PublishedColumn{c.Name, column + " = " + strings.TrimSuffix(unpublished, "::"), "", false})
			}
		}
	}
	return all
}

// GivenUp is the condition, of an unpublished row, that the publisher gave it up; empty: no column
// shows. most is the largest number of attempts that a published row took; see AttemptsColumn.
func (s *Shape) GivenUp(most string) string {
	var either []string
	if column, ok := s.AttemptsColumn(); ok && most != "" {
		quoted := wal.QuoteIdentifier(column)
		either = append(either, "coalesce("+quoted+" > 0 AND "+quoted+" >= "+postgres.QuoteLiteral(most)+"::numeric, false)")
	}
	for _, c := range s.Columns {
		if slices.Contains(errorColumns, strings.ToLower(c.Name)) {
			either = append(either, wal.QuoteIdentifier(c.Name)+" IS NOT NULL")
		}
	}
	if len(either) == 0 {
		return ""
	}
	return "(" + strings.Join(either, " OR ") + ")"
}

// AttemptsColumn is the column that counts a publisher's attempts.
func (s *Shape) AttemptsColumn() (string, bool) {
	for _, c := range s.Columns {
		if slices.Contains(attemptColumns, strings.ToLower(c.Name)) && slices.Contains([]string{"smallint", "integer", "bigint", "numeric"}, c.Type) {
			return c.Name, true
		}
	}
	return "", false
}
