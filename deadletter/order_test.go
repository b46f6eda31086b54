package deadletter

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// The number of a row that was read from its table is good for one call of the backfill, and its
// ordinal for all: a letter of a later call comes later.
func TestID_OfALaterCallOfABackfillComesLater(t *testing.T) {
	const first, second = 1_700_000_000_000_000, 1_700_000_900_000_000
	earlier := ID{Place: wal.Place{Commit: 950, Ordinal: first + 950}} // of the call that was given up
	later := ID{Place: wal.Place{Commit: 12, Ordinal: second + 12}}    // of the one after it, which finds fewer rows
	if !earlier.FromTable() || !later.FromTable() || earlier.Compare(later) >= 0 {
		t.Errorf("%s is redriven after %s", earlier, later)
	}
}

// The number of a row says nothing of positions in the WAL: what a slot has comes after the table's rows.
func TestID_OfTheTableComesBeforeTheStream(t *testing.T) {
	table := ID{Place: wal.Place{Commit: 50_000_000, Ordinal: 1_700_000_050_000_000}}
	stream := ID{Place: wal.Place{Commit: 0x1528F00, Ordinal: 1}}
	if table.Compare(stream) >= 0 || stream.Compare(table) <= 0 {
		t.Errorf("%s is redriven after %s", table, stream)
	}
}
