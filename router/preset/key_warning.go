package preset

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
)

// NoKey warns of a table without a column for the key, and names those that look
// as if they were meant to be it.
func NoKey(rel *wal.Relation) string {
	warning := "no ordering key: no column is mapped to the key, so the event id is the key and nothing keeps two rows in order; set columns.key"
	if like := candidates(keyLike, false, RoleKey, rel); len(like) > 0 {
		warning += ", perhaps to " + strings.Join(like, " or ")
	}
	for _, name := range column.Hidden(slices.Concat(recognised[RoleKey], keyLike), false, rel) {
		warning += fmt.Sprintf("; %v", column.HiddenColumn(rel, name))
	}
	return warning
}
