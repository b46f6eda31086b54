package router

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// noKey warns of a table without a column for the key, and names those that look
// as if they were meant to be it.
func noKey(rel *wal.Relation) string {
	warning := "no ordering key: no column is mapped to the key, so the event id is the key and nothing keeps two rows in order; set columns.key"
	if like := candidates(keyLike, false, roleKey, rel); len(like) > 0 {
		warning += ", perhaps to " + strings.Join(like, " or ")
	}
	for _, name := range hidden(slices.Concat(recognised[roleKey], keyLike), false, rel) {
		warning += fmt.Sprintf("; %v", hiddenColumn(rel, name))
	}
	return warning
}
