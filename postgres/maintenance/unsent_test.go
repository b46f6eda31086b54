package maintenance

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// What is found was done since a moment, and is found no more since a later one.
func TestUnsent_NamesTablesWithRowsThatAreInNoStream(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, `CREATE TABLE parts (n int, data text) PARTITION BY RANGE (n); CREATE TABLE part_0 PARTITION OF parts FOR VALUES FROM (0) TO (10);
			CREATE TABLE listed (n int); CREATE TABLE other (n int)`)
		db.Exec(t, `CREATE PUBLICATION cdc_relay FOR TABLE parts, listed`)
		surveyor, err := OpenSurvey(t.Context(), postgres.Config{URL: db.URL})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(surveyor.Close)
		q := postgres.Querier{Ctx: t.Context(), Conn: postgrestest.Open(t, postgres.Config{URL: db.URL}, false)}
		found := func(table string, ended uint64) string {
			t.Helper()
			attached, rewritten, err := surveyor.Unsent(t.Context(), harness.Query[uint32](t, db, `SELECT $1::text::regclass::oid`, table), ended, []string{"cdc_relay"})
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(attached)
			return strings.ReplaceAll(strings.Join(attached, " ")+"; "+strings.Join(rewritten, " "), "public.", "")
		}
		now := func() uint64 {
			t.Helper()
			ended, err := catalog.Ended(q)
			if err != nil {
				t.Fatal(err)
			}
			return ended
		}
		began := now()
		db.Exec(t, `BEGIN; CREATE TABLE part_1 (LIKE parts); ALTER TABLE parts ATTACH PARTITION part_1 FOR VALUES FROM (10) TO (20); COMMIT; INSERT INTO parts SELECT generate_series(0, 19)`)
		db.Exec(t, `CREATE TABLE part_2 PARTITION OF parts FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (n); CREATE TABLE part_2a PARTITION OF part_2 FOR VALUES FROM (20) TO (25); INSERT INTO parts VALUES (23)`)
		db.Exec(t, `INSERT INTO parts VALUES (22); CREATE INDEX ON parts (n); GRANT SELECT ON part_0 TO PUBLIC; ALTER TABLE other ADD COLUMN more int`)
		db.Exec(t, `VACUUM ANALYZE parts`)
		db.Exec(t, `VACUUM FULL listed`)
		if got := found("parts", began) + found("listed", began) + found("other", began); got != "; ; ; " {
			t.Errorf("found %q", got)
		}

		db.Exec(t, `BEGIN; CREATE TABLE part_3 (LIKE parts); INSERT INTO part_3 VALUES (31); ALTER TABLE parts ATTACH PARTITION part_3 FOR VALUES FROM (30) TO (40); COMMIT`)
		db.Exec(t, `BEGIN; CREATE TABLE part_4 (LIKE parts) PARTITION BY RANGE (n); CREATE TABLE part_4a PARTITION OF part_4 FOR VALUES FROM (40) TO (45); INSERT INTO part_4 VALUES (44);
			ALTER TABLE parts ATTACH PARTITION part_4 FOR VALUES FROM (40) TO (50); COMMIT`)
		db.Exec(t, `CREATE TABLE part_5 (LIKE parts)`)
		db.Exec(t, `ALTER TABLE parts ATTACH PARTITION part_5 FOR VALUES FROM (50) TO (60)`)
		db.Exec(t, `ALTER TABLE parts DETACH PARTITION part_1`)
		db.Exec(t, `ALTER TABLE parts ATTACH PARTITION part_1 FOR VALUES FROM (10) TO (20)`)
		if got := found("parts", began); got != "part_1 part_3 part_4a part_5; " {
			t.Errorf("found %q", got)
		}
		db.Exec(t, `BEGIN; ALTER TABLE part_0 SET UNLOGGED; INSERT INTO part_0 VALUES (1); ALTER TABLE part_0 SET LOGGED; COMMIT`)
		db.Exec(t, `ALTER TABLE other SET UNLOGGED`)
		db.Exec(t, `ALTER TABLE other SET LOGGED`)
		db.Exec(t, `VACUUM FREEZE`)
		since := now()
		if got := found("parts", began) + "; " + found("other", began); got != "part_1 part_3 part_4a part_5; part_0; ; other" {
			t.Errorf("found %q", got)
		}
		if got := found("parts", since) + found("other", since); got != "; ; " {
			t.Errorf("found %q since it was said that nothing is left", got)
		}
		if got := found("parts", 0) + "; " + found("other", 0); !strings.HasSuffix(got, "part_1 part_3 part_4a part_5; part_0; ; other") {
			t.Errorf("found %q where nobody said when", got)
		}
	})
}

// The position of a slot says which transactions have ended, and an open one has not.
func TestEnded_LeavesOpenTransactionsOut(t *testing.T) {
	db := harness.Postgres(t)
	q := postgres.Querier{Ctx: t.Context(), Conn: postgrestest.Open(t, postgres.Config{URL: db.URL}, false)}
	writer := db.Connect(t)
	if _, err := writer.Exec(t.Context(), `BEGIN`); err != nil {
		t.Fatal(err)
	}
	var open uint64
	if err := writer.QueryRow(t.Context(), `SELECT txid_current()`).Scan(&open); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `CREATE TABLE more (n int)`)
	if ended, err := catalog.Ended(q); err != nil || ended != open {
		t.Errorf("all below %d have ended, %v, and %d is open", ended, err, open)
	}
	if _, err := writer.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `SELECT pg_create_logical_replication_slot('ended', 'pgoutput')`)
	ended, err := catalog.EndedBefore(q, "ended")
	if next := harness.Query[int64](t, db, `SELECT txid_current()`); err != nil || ended <= open || ended > uint64(next) {
		t.Errorf("all below %d had ended, %v; %d is the next", ended, err, next)
	}
	if none, err := catalog.EndedBefore(q, "none"); err != nil || none != 0 {
		t.Errorf("%d, %v of a slot that does not exist", none, err)
	}
}
