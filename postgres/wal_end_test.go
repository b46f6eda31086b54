package postgres

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Right after a segment switch the insert position lies after the header of a page that
// is not written, and a quiet server never flushes that far.
func TestWALInserted_IsReachedByAQuietServerAfterASegmentSwitch(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{"checkpoint_timeout": "1d", "autovacuum": "off"}})
	db.Exec(t, `CREATE TABLE quiet (n bigserial PRIMARY KEY, key text)`)
	conn := db.Connect(t)
	position := func(call string) (lsn wal.LSN) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), `SELECT `+call+`()`).Scan(&lsn); err != nil {
			t.Fatal(err)
		}
		return lsn
	}
	for try := 0; position("pg_current_wal_insert_lsn")%8192 != 40; try++ { // the background writer may log a snapshot at once
		if try == 10 {
			t.Fatal("the server wrote to each new segment at once")
		}
		db.Exec(t, `INSERT INTO quiet (key) VALUES ('a')`)
		db.Exec(t, `SELECT pg_switch_wal()`) // alone: a commit record would follow it
	}
	q := Querier{Ctx: t.Context(), Conn: conn.PgConn()}
	end, err := WALInserted(q)
	if err != nil {
		t.Fatal(err)
	}
	if flushed := position("pg_current_wal_flush_lsn"); end > flushed {
		t.Errorf("the end of the WAL is %s, a quiet server stays at %s", end, flushed)
	}
}
