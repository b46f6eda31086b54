package provision_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
	"github.com/cdc-relay/cdc-relay/postgres/preflight/preflighttest"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/teardown"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5"
)

func createOutbox(table wal.Table) (string, error) {
	return "CREATE TABLE " + wal.QuoteIdentifier(table.Name) + " (id uuid PRIMARY KEY, payload jsonb); CREATE INDEX ON " + wal.QuoteIdentifier(table.Name) + " (payload)", nil
}

// describe prints steps as "table public.outbox: new".
func describe(steps []provision.Step) string {
	var list []string
	for _, step := range steps {
		state := "nothing"
		switch {
		case step.Exists && step.SQL == "":
			state = "there"
		case step.SQL != "":
			state = "do"
		}
		list = append(list, step.Object+" "+state)
	}
	return strings.Join(list, ", ")
}

// world lists what setup could have made.
func world(t *testing.T, db *harness.Database, slot string) string {
	t.Helper()
	return harness.Query[string](t, db, `SELECT concat_ws(' ',
		(SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace),
		(SELECT count(*) FROM pg_publication),
		(SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1))`, slot)
}

func TestSetup_MakesWhatIsMissingAndOnlyThat(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.Config(t, db)
		cfg.Publication = `Relay's "best"`
		cfg.Tables = []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: `we"ird'; DROP TABLE outbox; --`}}

		_, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{})
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableMissing, "public.outbox", "--create-table")

		dry, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{DryRun: true, CreateTable: createOutbox})
		if err != nil {
			t.Fatal(err)
		}
		if got := describe(dry.Steps); got != "table do, table do, publication do, slot do" {
			t.Errorf("dry run: %s", got)
		}
		if got := world(t, db, cfg.Slot); got != "0 0 0" {
			t.Fatalf("a dry run made something: %s", got)
		}

		var told []provision.Step
		report, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{CreateTable: createOutbox, OnStep: func(s provision.Step) { told = append(told, s) }})
		if err != nil {
			t.Fatal(err)
		}
		if got := world(t, db, cfg.Slot); got != "2 1 1" {
			t.Fatalf("made: %s", got)
		}
		if !slices.Equal(told, report.Steps) || !slices.Equal(told, dry.Steps) {
			t.Errorf("told %v\nreport %v\ndry %v", told, report.Steps, dry.Steps)
		}
		if n, ok := report.RowsBefore["public.outbox"]; !ok || n != 0 {
			t.Errorf("rows before: %v", report.RowsBefore)
		}
		if flags := harness.Query[string](t, db, `SELECT concat(pubinsert, pubupdate, pubdelete, pubtruncate, puballtables, pubviaroot) FROM pg_publication`); flags != "tfffff" {
			t.Errorf("publication flags %s", flags)
		}
		if harness.Query[int](t, db, `SELECT current_setting('server_version_num')::int`) >= 170000 {
			if !harness.Query[bool](t, db, `SELECT failover FROM pg_replication_slots WHERE slot_name = $1`, cfg.Slot) {
				t.Error("the slot has no failover")
			}
		}
		if _, err := postgrestest.Inspect(t, cfg); err != nil {
			t.Errorf("what setup made cannot be streamed: %v", err)
		}

		again, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{CreateTable: createOutbox})
		if err != nil {
			t.Fatal(err)
		}
		if got := describe(again.Steps); got != "table there, table there, publication there, slot there" || again.RowsBefore != nil {
			t.Errorf("second time: %s, %v", got, again.RowsBefore)
		}

		plan, err := teardown.Run(t.Context(), cfg, false)
		if err != nil || describe(plan) != "slot do, publication do" || world(t, db, cfg.Slot) != "2 1 1" {
			t.Errorf("plan of teardown: %s, %v, %s", describe(plan), err, world(t, db, cfg.Slot))
		}
		done, err := teardown.Run(t.Context(), cfg, true)
		if err != nil || !slices.Equal(done, plan) || world(t, db, cfg.Slot) != "2 0 0" {
			t.Errorf("teardown: %v, %v, %s", done, err, world(t, db, cfg.Slot))
		}
		if rest, err := teardown.Run(t.Context(), cfg, true); err != nil || describe(rest) != "slot nothing, publication nothing" {
			t.Errorf("teardown of nothing: %v, %v", rest, err)
		}
	})
}

func TestSetup_CountsRowsFromBeforeTheSlot(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.Config(t, db)
	db.Exec(t, postgrestest.OutboxSQL)
	db.Exec(t, `INSERT INTO outbox (id, "aggregateType") SELECT gen_random_uuid(), 'a' FROM generate_series(1, 7)`)
	report, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if report.RowsBefore["public.outbox"] != 7 {
		t.Errorf("rows before: %v", report.RowsBefore)
	}
}

func TestSetup_PublishesAPartitionedTableUnderItsName(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.Config(t, db)
	db.Exec(t, `CREATE TABLE outbox (id uuid, at date) PARTITION BY RANGE (at); CREATE TABLE outbox_1 PARTITION OF outbox DEFAULT`)
	report, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if sql := report.Steps[1].SQL; !strings.Contains(sql, "publish_via_partition_root = true") {
		t.Errorf("SQL: %s", sql)
	}
	if _, err := postgrestest.Inspect(t, cfg); err != nil {
		t.Error(err)
	}
}

func TestSetup_NeverAltersWhatItFinds(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.Config(t, db)
	db.Exec(t, postgrestest.OutboxSQL)
	db.Exec(t, `CREATE TABLE other (id int)`)
	db.Exec(t, `CREATE PUBLICATION cdc_relay FOR TABLE other WITH (publish = 'insert')`)
	_, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableUnpublished, `ALTER PUBLICATION "cdc_relay" ADD TABLE "public"."outbox"`)

	// The same for a table that setup would make: nothing of it remains.
	fresh := cfg
	fresh.Tables = []wal.Table{{Schema: "public", Name: "fresh"}}
	_, err = provision.Setup(t.Context(), fresh, provision.SetupOptions{CreateTable: createOutbox})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableUnpublished, `ADD TABLE "public"."fresh"`)
	if got := world(t, db, cfg.Slot); got != "2 1 0" {
		t.Errorf("something was made: %s", got)
	}
	_, err = teardown.Run(t.Context(), cfg, true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPublicationChanged, "public.other", `DROP PUBLICATION "cdc_relay"`)

	// A failing statement takes its transaction with it.
	broken := cfg
	broken.Publication, broken.Tables = "another", []wal.Table{{Schema: "public", Name: "fresh"}, {Schema: "public", Name: "bad"}}
	_, err = provision.Setup(t.Context(), broken, provision.SetupOptions{CreateTable: func(table wal.Table) (string, error) {
		if table.Name == "bad" {
			return "CREATE TABLE bad (id no_such_type)", nil
		}
		return createOutbox(table)
	}})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonServerError, "create table public.bad", "no_such_type")
	if got := world(t, db, cfg.Slot); got != "2 1 0" {
		t.Errorf("something was made: %s", got)
	}
}

func TestSetup_RefusesASlotOlderThanItsPublication(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.OutboxDatabase(t, db)
	db.Exec(t, `DROP PUBLICATION cdc_relay`)
	_, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonSlotUnusable, cfg.Slot, "teardown")
	if got := world(t, db, cfg.Slot); got != "1 0 1" {
		t.Errorf("something was made: %s", got)
	}
}

// slowWriter has a transaction open.
func slowWriter(t *testing.T, db *harness.Database) *pgx.Conn {
	t.Helper()
	options, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	options.RuntimeParams["application_name"] = "nightly-import"
	writer, err := pgx.ConnectConfig(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writer.Close(context.WithoutCancel(t.Context())) })
	if _, err := writer.Exec(t.Context(), `BEGIN; CREATE TABLE slow (id int)`); err != nil {
		t.Fatal(err)
	}
	return writer
}

func TestExportSlot_NamesTheTransactionsThatItWaitsFor(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.Config(t, db)
		writer := slowWriter(t, db)
		_, err := provision.ExportSlot(t.Context(), cfg, cfg.BackfillSlot(), 200*time.Millisecond)
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTimeout, "200ms", fmt.Sprintf("pid %d", writer.PgConn().PID()), "nightly-import", "idle in transaction")
		if _, err := writer.Exec(t.Context(), `COMMIT`); err != nil {
			t.Fatal(err)
		}
		made, err := provision.ExportSlot(t.Context(), cfg, cfg.BackfillSlot(), provision.DefaultSlotTimeout)
		if err != nil {
			t.Fatalf("after it ended: %v", err)
		}
		made.Close()
	})
}

func TestSetup_NamesTheTransactionsThatTheSlotWaitsFor(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.Config(t, db)
		db.Exec(t, postgrestest.OutboxSQL)
		writer := slowWriter(t, db)
		_, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{SlotTimeout: 200 * time.Millisecond})
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTimeout, "200ms", fmt.Sprintf("pid %d", writer.PgConn().PID()), "nightly-import", "idle in transaction")
		if got := world(t, db, cfg.Slot); got != "1 1 0" {
			t.Errorf("after the timeout: %s", got)
		}
		if _, err := writer.Exec(t.Context(), `COMMIT`); err != nil {
			t.Fatal(err)
		}
		report, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{})
		if err != nil || describe(report.Steps) != "table there, publication there, slot do" {
			t.Errorf("after it ended: %v, %v", report, err)
		}
	})
}

func TestSetup_SaysWhichRightIsMissing(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.Config(t, db)
	db.Exec(t, postgrestest.OutboxSQL)
	replicator := postgrestest.AsReplicator(t, db, cfg)
	_, err := provision.Setup(t.Context(), replicator, provision.SetupOptions{})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, "42501", "run setup as the owner of the tables")
	// Setup would make the slot too, and a backfill or a cutover refuses one that it did not make.
	_, err = provision.Setup(t.Context(), replicator, provision.SetupOptions{WithoutSlots: true})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, "42501", `as the owner of the tables, with CREATE on the database, run: CREATE PUBLICATION "cdc_relay"`)
	if strings.Contains(err.Error(), "run setup") {
		t.Errorf("it sends to setup: %v", err)
	}

	db.Exec(t, `CREATE PUBLICATION cdc_relay FOR TABLE outbox WITH (publish = 'insert')`)
	report, err := provision.Setup(t.Context(), replicator, provision.SetupOptions{})
	if err != nil {
		t.Fatalf("a role with REPLICATION can make the slot: %v", err)
	}
	if _, counted := report.RowsBefore["public.outbox"]; counted {
		t.Error("a table that may not be read was counted")
	}
	if _, err := teardown.Run(t.Context(), cfg, true); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `CREATE PUBLICATION cdc_relay FOR TABLE outbox WITH (publish = 'insert')`)
	ordinary := cfg
	ordinary.URL = postgrestest.WithUser(t, cfg.URL, postgrestest.NewRole(t, db, "LOGIN"))
	report, err = provision.Setup(t.Context(), ordinary, provision.SetupOptions{DryRun: true})
	if text := strings.Join(report.Warnings, "\n"); err != nil || !strings.Contains(text, "creating slot") || !strings.Contains(text, "ALTER ROLE") {
		t.Errorf("a dry run without the right to make the slot: %v, warnings %q", err, text)
	}
	for name, able := range map[string]postgres.Config{"replicator": replicator, "superuser": cfg} {
		report, err = provision.Setup(t.Context(), able, provision.SetupOptions{DryRun: true})
		if text := strings.Join(report.Warnings, "\n"); err != nil || strings.Contains(text, "would fail") {
			t.Errorf("a dry run as %s: %v, warnings %q", name, err, text)
		}
	}
	_, err = provision.Setup(t.Context(), ordinary, provision.SetupOptions{})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, "create slot", "REPLICATION")
}

func TestSetup_ChecksNamesBeforeItConnects(t *testing.T) {
	good := postgres.Config{URL: "host=/nowhere", Slot: "s", Publication: "p", Tables: []wal.Table{{Schema: "public", Name: "outbox"}}}
	for name, change := range map[string]func(*postgres.Config){
		"slot":             func(c *postgres.Config) { c.Slot = "Upper" },
		"no publication":   func(c *postgres.Config) { c.Publication = "" },
		"long publication": func(c *postgres.Config) { c.Publication = strings.Repeat("x", 64) },
		"no tables":        func(c *postgres.Config) { c.Tables = nil },
	} {
		cfg := good
		change(&cfg)
		_, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{})
		if err == nil || postgres.Reason(err) != fault.ReasonConfiguration {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSetupPublishesWhatIsWantedWhereItIsHarmless(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE outbox (id int PRIMARY KEY); CREATE TABLE bare (id int)`)
	for _, c := range []struct {
		tables  []wal.Table
		wants   []wal.Wants
		publish string
		warns   bool
	}{
		{[]wal.Table{{Schema: "public", Name: "outbox"}}, nil, "insert", false},
		{[]wal.Table{{Schema: "public", Name: "outbox"}}, []wal.Wants{{Update: true, Meta: true}}, "insert, update", false},
		{[]wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: "bare"}}, []wal.Wants{{Update: true}}, "insert", true},
	} {
		cfg := postgrestest.Config(t, db)
		cfg.Tables, cfg.Wants = c.tables, c.wants
		report, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		var sql string
		for _, step := range report.Steps {
			if step.Object == "publication" {
				sql = step.SQL
			}
		}
		if !strings.Contains(sql, "publish = '"+c.publish+"'") {
			t.Errorf("%v: %s", c.wants, sql)
		}
		if warned := strings.Contains(strings.Join(report.Warnings, "\n"), "no replica identity"); warned != c.warns {
			t.Errorf("%v: warnings %q", c.wants, report.Warnings)
		}
	}
}

// Half of what it says is done, and the half that is left is not needed.
func TestTeardown_AsTheRelaysRoleSaysHowToGoOn(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.OutboxDatabase(t, db)
	replicator := postgrestest.AsReplicator(t, db, cfg)
	steps, err := teardown.Run(t.Context(), replicator, true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, "42501", "drop publication", "the slot is dropped", "continue with `cdc-relay setup`", "as its owner")
	if describe(steps) != "slot do" {
		t.Errorf("done: %s", describe(steps))
	}
	report, err := provision.Setup(t.Context(), replicator, provision.SetupOptions{})
	if err != nil || describe(report.Steps) != "table there, publication there, slot do" {
		t.Errorf("what was left is not enough: %v, %v", describe(report.Steps), err)
	}

	ordinary := cfg
	ordinary.URL = postgrestest.WithUser(t, cfg.URL, postgrestest.NewRole(t, db, "LOGIN"))
	steps, err = teardown.Run(t.Context(), ordinary, true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, "drop slot", "a role with REPLICATION")
	if len(steps) != 0 || strings.Contains(err.Error(), "is dropped") {
		t.Errorf("done: %s, %v", describe(steps), err)
	}
}

// A name without quotes is in lower case, so the table of the application would stand
// beside an empty one of ours, and no row would ever come.
func TestTableMissing_NamesTheOneThatDiffersInCase(t *testing.T) {
	db := harness.Postgres(t, "15")
	db.Exec(t, `CREATE TABLE "OutboxMessage" (id uuid PRIMARY KEY, payload jsonb); CREATE SCHEMA "Shop"; CREATE TABLE "Shop".outbox (id int)`)
	cfg := postgrestest.Config(t, db)
	cfg.Tables, cfg.Places = []wal.Table{{Schema: "public", Name: "outboxmessage"}}, []string{"relay.yaml:5"}
	const want = `did you mean public."OutboxMessage"?`
	for name, options := range map[string]provision.SetupOptions{"setup": {}, "setup --create-table": {CreateTable: createOutbox}, "a dry run": {DryRun: true, CreateTable: createOutbox}} {
		_, err := provision.Setup(t.Context(), cfg, options)
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableMissing, want, `table: 'public."OutboxMessage"' (relay.yaml:5)`)
		if got := world(t, db, cfg.Slot); got != "1 0 0" {
			t.Fatalf("%s made something: %s", name, got)
		}
	}
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "table", advice.Fail, "does not exist, but", want, "relay.yaml:5")
	_, _, err := catalog.Describe(t.Context(), cfg, 0)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableMissing, want)
	db.Exec(t, `CREATE PUBLICATION cdc_relay FOR TABLE "OutboxMessage"`)
	_, err = postgrestest.Inspect(t, cfg)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableMissing, want)

	cfg.Tables = []wal.Table{{Schema: "shop", Name: "outbox"}}
	_, err = provision.Setup(t.Context(), cfg, provision.SetupOptions{})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableMissing, `did you mean "Shop".outbox?`)
	cfg.Tables = []wal.Table{{Schema: "public", Name: "other"}}
	_, err = provision.Setup(t.Context(), cfg, provision.SetupOptions{})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableMissing, "correct the name (relay.yaml:5), or create it")
	cfg.Places = nil
	_, err = provision.Setup(t.Context(), cfg, provision.SetupOptions{})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableMissing, "correct the name, or create it")

	// Whoever has both, of which one may have been made by mistake.
	db.Exec(t, `CREATE TABLE outboxmessage (LIKE "OutboxMessage" INCLUDING ALL); ALTER PUBLICATION cdc_relay ADD TABLE outboxmessage`)
	cfg.Tables = []wal.Table{{Schema: "public", Name: "outboxmessage"}}
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "table", advice.Warn, `beside public.outboxmessage there is public."OutboxMessage"`)
	cfg.Tables = append(cfg.Tables, wal.Table{Schema: "public", Name: "OutboxMessage"})
	for _, f := range preflight.Check(t.Context(), cfg).Findings {
		if strings.Contains(f.Seen, "beside") {
			t.Errorf("both are configured: %+v", f)
		}
	}
}
