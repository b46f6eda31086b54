package integration

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// An outbox that nobody writes to does not hold back the WAL of tables that
// somebody does, and needs no heartbeat for it.
func TestIdle_OutboxFollowsTheWALOfOtherTables(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		p, _ := outbox(t, db, harness.Kfake(t, kfakeDefault))
		p.Start(t).AwaitStreaming(t)
		db.Exec(t, "CREATE TABLE busy (filler text); ALTER TABLE busy ALTER filler SET STORAGE EXTERNAL")
		before := p.WALEnd(t)
		const rowBytes = 1 << 20
		size := scale(t, "CDC_RELAY_TEST_IDLE_MB", 128)
		for range size / 64 {
			db.Exec(t, "INSERT INTO busy SELECT repeat('x', $1) FROM generate_series(1, 64)", rowBytes)
			db.Exec(t, "TRUNCATE busy")
		}
		end := p.WALEnd(t)
		if written := end - before; written < wal.LSN(size)<<20 {
			t.Fatalf("only %d bytes of WAL were written", written)
		}
		const near = 32 << 20
		relaytest.Eventually(t, "the confirmed position is near the tip", func() (bool, string) {
			confirmed := p.Confirmed(t)
			return confirmed+near >= end, fmt.Sprintf("confirmed %s, tip %s", confirmed, end)
		})
		relaytest.Eventually(t, "the restart position is near the tip", func() (bool, string) {
			// A checkpoint writes the record of running transactions that the position needs.
			db.Exec(t, "CHECKPOINT")
			restart := relaytest.LSN(t, db, "SELECT restart_lsn::text FROM pg_replication_slots WHERE slot_name = $1", p.Slot)
			return restart+near >= end, fmt.Sprintf("restart %s, tip %s", restart, end)
		})
	})
}
