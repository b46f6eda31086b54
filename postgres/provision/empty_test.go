package provision

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestFindEmpty_SeesEveryRowThatASlotDoesNotHave(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		cfg := postgrestest.OutboxDatabase(t, db)
		db.Exec(t, `CREATE TABLE "Other" (n int) PARTITION BY LIST (n); CREATE TABLE leaf PARTITION OF "Other" DEFAULT`)
		cfg.Tables = append(cfg.Tables, wal.Table{Schema: "public", Name: "Other"})
		tables, err := ReadTables(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		find := func(patience time.Duration, first, second bool) {
			t.Helper()
			got, err := findEmpty(t.Context(), cfg, tables, patience)
			if err != nil || len(got) != 2 || got[0].Empty != first || got[1].Empty != second || got[1].OID != tables[1].OID {
				t.Errorf("%+v, %v; want empty %t, %t", got, err, first, second)
			}
		}
		find(time.Minute, true, true)
		db.Exec(t, `INSERT INTO "Other" VALUES (1)`)
		find(time.Minute, true, false)

		// A commit that nobody sees yet may lie before the slot, so nothing is known.
		db.Exec(t, `TRUNCATE "Other"`)
		writer := db.Connect(t)
		if _, err := writer.Exec(t.Context(), `BEGIN; INSERT INTO "Other" VALUES (1)`); err != nil {
			t.Fatal(err)
		}
		find(0, false, false)
		if _, err := writer.Exec(t.Context(), `ROLLBACK`); err != nil {
			t.Fatal(err)
		}
		find(time.Minute, true, true)
	})
}

func TestFindEmpty_WithoutTheRightToLookNothingIsEmpty(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.OutboxDatabase(t, db)
	tables, err := ReadTables(t.Context(), cfg)
	if err != nil || len(tables) != 1 || tables[0].OID == 0 {
		t.Fatalf("%+v, %v", tables, err)
	}
	replicator := postgrestest.AsReplicator(t, db, cfg)
	if got, err := FindEmpty(t.Context(), replicator, tables); err != nil || len(got) != 1 || got[0].Empty {
		t.Errorf("%+v, %v", got, err)
	}
	tables[0].OID++ // the table was replaced
	if got, err := FindEmpty(t.Context(), cfg, tables); err != nil || got[0].Empty {
		t.Errorf("%+v, %v", got, err)
	}
	cfg.Tables[0].Name = "none"
	_, err = ReadTables(t.Context(), cfg)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableMissing, "none")
}
