package relay

import (
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// olderTypes decides whether the WAL may hold rows from before a column's type changed.
// A session chooses text or binary by the types that the catalog has now, and rows of an
// older type may wait in the slot: in binary, a row whose type has no exact text form ends
// the session with record.ErrBinary. Such rows lie before the end of the WAL that the next
// session finds, because it reads the catalog with the newer type. So that session and
// every other one that starts before this end reads text.
//
// A guess that is wrong, as after a crash of PostgreSQL that takes the slot back, costs one
// more session that ends so.
type olderTypes struct {
	seen bool
	end  wal.LSN // zero: the next session sets it
}

// met notes that a session ended at such a row.
func (o *olderTypes) met() { *o = olderTypes{seen: true} }

// ahead reports whether a session that starts at from may meet such a row. end is the end
// of the WAL as the session found it.
func (o *olderTypes) ahead(from, end wal.LSN) bool {
	if o.seen && o.end == 0 {
		o.end = end
		return true
	}
	if from >= o.end {
		*o = olderTypes{}
	}
	return o.seen
}
