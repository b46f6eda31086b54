package provision

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Right after a segment switch the insert position lies behind the header of a page that
// is not written, and a quiet server never flushes that far.
func TestReshard_EndsOnAQuietServerAfterASegmentSwitch(t *testing.T) {
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
	for try := 0; position("pg_current_wal_insert_lsn")%walPage != walLongHeader; try++ { // the background writer may log a snapshot at once
		if try == 10 {
			t.Fatal("the server wrote to each new segment at once")
		}
		db.Exec(t, `INSERT INTO quiet (key) VALUES ('a')`)
		db.Exec(t, `SELECT pg_switch_wal()`) // alone: a commit record would follow it
	}
	q := postgres.Querier{Ctx: t.Context(), Conn: conn.PgConn()}
	end, err := walInserted(q)
	if err != nil {
		t.Fatal(err)
	}
	if flushed := position("pg_current_wal_flush_lsn"); end > flushed {
		t.Errorf("the end of the WAL is %s, a quiet server stays at %s", end, flushed)
	}
}

func TestBeforePageHeader(t *testing.T) {
	const segment = 16 << 20
	for _, tt := range []struct {
		inserted, want wal.LSN
		size           uint64
	}{
		{segment + 40, segment, segment},
		{segment + 24, segment, segment}, // no position of a server's: its header is the long one
		{segment + 8192 + 24, segment + 8192, segment},
		{segment + 8192 + 40, segment + 8192 + 40, segment}, // a record of 16 bytes behind the short header
		{segment + 64, segment + 64, segment},
		{segment, segment, segment},
		{1<<20 + 40, 1 << 20, 1 << 20},
		{1<<20 + 40, 1<<20 + 40, segment},
		{40, 0, segment},
	} {
		if got := beforePageHeader(tt.inserted, tt.size); got != tt.want {
			t.Errorf("%s with segments of %d bytes: %s, want %s", tt.inserted, tt.size, got, tt.want)
		}
	}
}
