package resume

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// A server sends a transaction again whose commit record begins at the confirmed position.
func TestPartial_IsUnconfirmedUntilThePositionIsPastItsCommit(t *testing.T) {
	p := Partial{Last: wal.Place{Commit: 130, Ordinal: 2}, Rows: 2}
	for confirmed, want := range map[wal.LSN]int{129: 2, 130: 2, 131: 0} {
		if got := p.Unconfirmed(confirmed); got != want {
			t.Errorf("confirmed to %s: %d rows are unconfirmed, want %d", confirmed, got, want)
		}
	}
}
