package snapshot

import (
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// PublishedColumn is a column by which a polling publisher remembers what it has published.
type PublishedColumn struct {
	Column string
	Where  string // the condition that a row is not published

	// Sure: a row that does not meet the condition is published. A status may also say that the
	// publisher failed, or was in the middle of it.
	Sure bool
}

var (
	markTimes = []string{"published_at", "processed_at", "sent_at", "dispatched_at", "processed_on", "published_on", "sent_on", "dispatched_on"}
	markFlags = []string{"published", "processed", "sent", "dispatched"}
	literal   = regexp.MustCompile(`^'((?:[^']|'')*)'::`)
)

// PublishedColumn finds it; false: there is none that is known. A status is taken for one when its
// default says what an unpublished row has.
func (s *Shape) PublishedColumn() (PublishedColumn, bool) {
	for _, c := range s.Columns {
		name, column := strings.ToLower(c.Name), wal.QuoteIdentifier(c.Name)
		switch {
		case slices.Contains(markTimes, name) && strings.HasPrefix(c.Type, "timestamp"):
			return PublishedColumn{c.Name, column + " IS NULL", true}, true
		case slices.Contains(markFlags, name) && c.Type == "boolean":
			return PublishedColumn{c.Name, column + " IS NOT TRUE", true}, true
		case name == "status":
			if unpublished := literal.FindString(c.Default); unpublished != "" {
				return PublishedColumn{c.Name, column + " = " + strings.TrimSuffix(unpublished, "::"), false}, true
			}
		}
	}
	return PublishedColumn{}, false
}
