package teardown_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/incomplete"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/teardown"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// describe says of each step whether there is something to do.
func describe(steps []provision.Step) string {
	var list []string
	for _, step := range steps {
		state := "nothing"
		if step.SQL != "" {
			state = "do"
		}
		list = append(list, step.Object+" "+state)
	}
	return strings.Join(list, ", ")
}

// world counts tables, publications, and slots of a name.
func world(t *testing.T, db *harness.Database, slot string) string {
	t.Helper()
	return harness.Query[string](t, db, `SELECT concat_ws(' ', (SELECT count(*) FROM pg_tables WHERE schemaname = 'public'),
		(SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1))`, slot)
}

func TestTeardown_RefusesDuringABackfillAndDropsWhatOneLeft(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		cfg := postgrestest.Config(t, db)
		db.Exec(t, postgrestest.OutboxSQL)
		if _, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{WithoutSlots: true}); err != nil {
			t.Fatal(err)
		}
		made, err := provision.ExportSlot(t.Context(), cfg, cfg.BackfillSlot(), provision.DefaultSlotTimeout)
		if err != nil {
			t.Fatal(err)
		}
		made.Close()
		at := postgres.Querier{Ctx: t.Context(), Conn: postgrestest.Open(t, cfg, false)}
		if err := incomplete.Lock(at, cfg); err != nil {
			t.Fatal(err)
		}
		for _, apply := range []bool{false, true} {
			_, err := teardown.Run(t.Context(), cfg, apply)
			postgrestest.WantError(t, err, fault.KindBusy, fault.ReasonSlotInUse, "drop slot", cfg.Slot, "a backfill, a cutover or a replay is under way: another session holds the lock: pid ", "stop it, or wait until it has ended")
		}
		if got := world(t, db, cfg.BackfillSlot()); got != "1 1 1" {
			t.Errorf("something was dropped: %s", got)
		}
		postgres.EndSession(at.Conn)

		plan, err := teardown.Run(t.Context(), cfg, false)
		if err != nil || describe(plan) != "slot nothing, slot do, publication do" || plan[1].Of != (incomplete.Slot{Name: cfg.BackfillSlot()}) {
			t.Errorf("the plan: %+v, %v", plan, err)
		}
		done, err := teardown.Run(t.Context(), cfg, true)
		if err != nil || !slices.Equal(done, plan) || world(t, db, cfg.BackfillSlot()) != "1 0 0" {
			t.Errorf("teardown: %+v, %v, %s", done, err, world(t, db, cfg.BackfillSlot()))
		}
	})
}

// Rows that the trigger of a cutover marks wait in its slot alone.
func TestTeardown_KeepsTheSlotOfACutoverInWhichRowsWait(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.Config(t, db)
	db.Exec(t, postgrestest.OutboxSQL)
	db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", cfg.CutoverSlot())
	db.Exec(t, `CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`)
	db.Exec(t, `CREATE TRIGGER cdc_relay_cutover BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION cut()`)
	db.Exec(t, `ALTER TABLE outbox ENABLE ALWAYS TRIGGER cdc_relay_cutover`)
	db.Exec(t, `COMMENT ON TRIGGER cdc_relay_cutover ON outbox IS 'cdc-relay cut at 0/1 for 7/s on 2026-01-31T08:00:00Z'`)
	_, err := teardown.Run(t.Context(), cfg, true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonCutoverTrigger, cfg.CutoverSlot(), "marked as published since 0/1", "cdc-relay cutover --mark-new --yes", "cdc-relay cutover --back --yes")
	if got := world(t, db, cfg.CutoverSlot()); got != "1 0 1" {
		t.Errorf("something was dropped: %s", got)
	}
	db.Exec(t, `ALTER TABLE outbox DISABLE TRIGGER cdc_relay_cutover`)
	done, err := teardown.Run(t.Context(), cfg, true)
	if err != nil || describe(done) != "slot nothing, slot do, publication nothing" || world(t, db, cfg.CutoverSlot()) != "1 0 0" {
		t.Errorf("without the trigger: %+v, %v, %s", done, err, world(t, db, cfg.CutoverSlot()))
	}
}
