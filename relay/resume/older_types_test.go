package resume

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestOlderTypes_AreReadAsTextUntilTheStartIsPastThem(t *testing.T) {
	var o OlderTypes
	look := func(from, end wal.LSN, want bool) {
		t.Helper()
		if got := o.Ahead(from, end); got != want {
			t.Fatalf("a session from %s, with WAL up to %s: %t, want %t", from, end, got, want)
		}
	}
	look(0x10, 0x90, false)
	o.Met()
	look(0x20, 0x90, true)
	look(0x80, 0x200, true) // the end is that of the first session behind it
	look(0x90, 0x300, false)
	look(0x20, 0x300, false) // the slot went back: the row is met again
	o.Met()
	look(0x20, 0x300, true)
	look(0x300, 0x300, false)
	o.Met()
	look(0x300, 0x300, true) // the first session behind it in any case
}
