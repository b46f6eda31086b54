package restore

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// A fork removes rows of the WAL by their positions. The place of a row that was read from its table
// is a number, which is before every fork.
func TestLost_GoesByThePositionsOfTheWALAlone(t *testing.T) {
	history := wal.Origin{Timeline: 5, Forks: []wal.Fork{{Timeline: 1, At: 0x5000000}, {Timeline: 4, At: 0x7000000}}}
	read := uint64(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	for name, c := range map[string]struct {
		id    deadletter.ID
		lost  bool
		began wal.LSN
	}{
		"before the fork":                {deadletter.ID{Timeline: 1, Place: wal.Place{Commit: 0x4000000, Ordinal: 1}}, false, 0},
		"behind the fork":                {deadletter.ID{Timeline: 1, Place: wal.Place{Commit: 0x6000000, Ordinal: 1}}, true, 0},
		"of now":                         {deadletter.ID{Timeline: 5, Place: wal.Place{Commit: 0x8000000, Ordinal: 1 << 40}}, false, 0},
		"without a timeline":             {deadletter.ID{Place: wal.Place{Commit: 0x6000000, Ordinal: 1}}, false, 0},
		"read from the table":            {deadletter.ID{Timeline: 5, Place: wal.Place{Commit: 2, Ordinal: read + 2}}, false, 0},
		"read from the table of earlier": {deadletter.ID{Timeline: 4, Place: wal.Place{Commit: 2, Ordinal: read + 2}}, false, 0},
		"of now, which began there":      {deadletter.ID{Timeline: 5, Place: wal.Place{Commit: 0x8000000, Ordinal: 1}}, false, 0x7000000},
		"of another standby's timeline":  {deadletter.ID{Timeline: 5, Place: wal.Place{Commit: 0x8000000, Ordinal: 1}}, true, 0x6000000},
		"of the first timeline":          {deadletter.ID{Timeline: 1, Place: wal.Place{Commit: 0x4000000, Ordinal: 1}}, false, 0},
	} {
		if got := lost(history, &deadletter.Letter{ID: c.id, Origin: deadletter.Origin{Began: c.began}}); got != c.lost {
			t.Errorf("%s: lost %t", name, got)
		}
	}
}
