package record

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestAppendLSN_IsTheServersNotation(t *testing.T) {
	for _, lsn := range []wal.LSN{0, 1, 0x10, 0x6B02760, 1 << 32, 0xABCDEF0123456789, 1<<64 - 1} {
		if got := string(appendLSN(nil, lsn)); got != lsn.String() {
			t.Errorf("%d: %q, want %q", uint64(lsn), got, lsn)
		}
		if n := len(appendLSN(nil, lsn)); n > maxLSN {
			t.Errorf("%d: %d characters", uint64(lsn), n)
		}
	}
}
