package preflight_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
	"github.com/cdc-relay/cdc-relay/postgres/preflight/preflighttest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

func worst(report *preflight.Report) (bad []advice.Finding) {
	for _, f := range report.Findings {
		if f.Level != advice.OK {
			bad = append(bad, f)
		}
	}
	return bad
}

// alter changes a setting of a test's own server and waits until new sessions
// have it.
func alter(t *testing.T, db *harness.Database, name, value string) {
	t.Helper()
	db.Exec(t, fmt.Sprintf(`ALTER SYSTEM SET %s = %s`, name, postgres.QuoteLiteral(value)))
	db.Exec(t, `SELECT pg_reload_conf()`)
	deadline := time.Now().Add(time.Minute)
	for harness.Query[string](t, db, `SELECT current_setting($1)`, name) != value {
		if time.Now().After(deadline) {
			t.Fatalf("%s never became %q", name, value)
		}
	}
}

func TestCheck_FindsNothingOnAHealthySystem(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.AsReader(t, db, postgrestest.OutboxDatabase(t, db))
		report := preflight.Check(t.Context(), cfg)
		if bad := worst(report); len(bad) > 0 {
			t.Errorf("findings on a healthy system: %+v", bad)
		}
		for _, check := range []string{
			"postgres.connection", "postgres.pooler", "postgres.version", "postgres.wal_level", "postgres.slots_free", "postgres.senders_free",
			"postgres.replication", "publication", "publication.tables", "table.replica_identity", "table.triggers", "slot", "slot.owner", "slot.wal",
			"slot.failover", "postgres.synchronous",
		} {
			preflighttest.WantFinding(t, report, check, advice.OK)
		}
		if len(report.Tables) != 1 {
			t.Fatalf("%d tables", len(report.Tables))
		}
		table := report.Tables[0]
		if table.Relation == nil || !table.Readable || strings.Join(table.Generated, ",") != "doubled" || len(table.Unlisted) != 0 {
			t.Errorf("table %+v", table)
		}
		if got, want := postgrestest.ColumnNames(table.Relation), "id uuid, aggregateType varchar, feeling mood, payload jsonb"; got != want {
			t.Errorf("columns %s, want %s", got, want)
		}
	})
}

func TestCheck_ChangesNothing(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	state := func() string {
		return harness.Query[string](t, db, `SELECT string_agg(concat_ws(' ', slot_name, confirmed_flush_lsn, active), ',' ORDER BY slot_name) || (SELECT count(*) FROM pg_publication)
			FROM pg_replication_slots WHERE database = current_database()`)
	}
	before := state()
	preflight.Check(t.Context(), cfg)
	if after := state(); after != before {
		t.Errorf("before %s, after %s", before, after)
	}
}

func TestCheck_SaysWhyItCannotConnect(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	other := cfg
	other.URL = "postgres://postgres@127.0.0.1:1/x?sslmode=disable"
	preflighttest.WantFinding(t, preflight.Check(t.Context(), other), "postgres.connection", advice.Fail, "127.0.0.1:1", "postgres.url")

	other = cfg
	other.URL = postgrestest.WithUser(t, cfg.URL, "nobody_by_that_name")
	preflighttest.WantFinding(t, preflight.Check(t.Context(), other), "postgres.connection", advice.Fail, "nobody_by_that_name")

	other = cfg
	other.Password = func(context.Context) (string, error) {
		return "", errors.New("run password_command pass: exit status 3")
	}
	report := preflight.Check(t.Context(), other)
	preflighttest.WantFinding(t, report, "postgres.connection", advice.Fail, "obtain the PostgreSQL password", "password_command pass: exit status 3", "no server was asked")
	if text := preflighttest.Findings(report); strings.Contains(text, "start the server") {
		t.Errorf("the server is blamed for a password that was not obtained:\n%s", text)
	}

	other = cfg
	other.Slot = "No"
	preflighttest.WantFinding(t, preflight.Check(t.Context(), other), "configuration", advice.Fail, "slot name")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	preflighttest.WantFinding(t, preflight.Check(ctx, cfg), "postgres.connection", advice.Fail)
}

func TestCheck_RoleNeedsReplication(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	cfg.URL = postgrestest.WithUser(t, cfg.URL, postgrestest.NewRole(t, db, "LOGIN"))
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "postgres.replication", advice.Fail, "REPLICATION")
}

func TestCheck_WarnsOfASuperuser(t *testing.T) {
	db := harness.Postgres(t, "15")
	preflighttest.WantFinding(t, preflight.Check(t.Context(), postgrestest.OutboxDatabase(t, db)), "postgres.role", advice.Warn, "superuser", "LOGIN REPLICATION")
}

func TestCheck_NamesTheGrantForReadingRows(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.AsReplicator(t, db, postgrestest.OutboxDatabase(t, db))
	report := preflight.Check(t.Context(), cfg)
	preflighttest.WantFinding(t, report, "table.select", advice.Warn, `GRANT SELECT ON "public"."outbox" TO`, "run works without")
	if report.Tables[0].Readable {
		t.Error("a table that may not be read counts as readable")
	}

	db.Exec(t, `CREATE SCHEMA app; CREATE TABLE app.outbox (id int PRIMARY KEY); ALTER PUBLICATION cdc_relay SET TABLE app.outbox`)
	cfg.Tables = []wal.Table{{Schema: "app", Name: "outbox"}}
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "table.select", advice.Warn, `GRANT USAGE ON SCHEMA "app" TO`)
}

func TestCheck_RowSecurityHidesRowsFromTheCheckAlone(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	db.Exec(t, `ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`)
	preflighttest.WantFinding(t, preflight.Check(t.Context(), postgrestest.AsReader(t, db, cfg)), "table.select", advice.Warn, "row-level security")
}

// What one role may not read does not end the checks.
func TestCheck_GoesOnWithoutRightsOnTheCatalog(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.AsReplicator(t, db, postgrestest.OutboxDatabase(t, db))
	db.Exec(t, `REVOKE ALL ON pg_catalog.pg_settings FROM PUBLIC`)
	report := preflight.Check(t.Context(), cfg)
	preflighttest.WantFinding(t, report, "postgres.settings", advice.Warn, "could not be checked", "pg_settings")
	preflighttest.WantFinding(t, report, "postgres.replication", advice.Warn, "could not be checked")
	preflighttest.WantFinding(t, report, "slot", advice.OK)
}

func TestCheck_Publication(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	db.Exec(t, `CREATE TABLE other (id int PRIMARY KEY); CREATE UNLOGGED TABLE volatile (id int)`)
	db.Exec(t, `CREATE PUBLICATION more FOR TABLE outbox, other WITH (publish = 'insert, update')`)
	db.Exec(t, `CREATE PUBLICATION "Part" FOR TABLE outbox (id, payload) WHERE (id IS NOT NULL), other WITH (publish = 'insert')`)
	db.Exec(t, `CREATE PUBLICATION removals FOR TABLE outbox WITH (publish = 'delete')`)
	db.Exec(t, `CREATE PUBLICATION everything FOR ALL TABLES WITH (publish = 'insert')`)
	db.Exec(t, `CREATE PUBLICATION nothing WITH (publish = 'insert')`)
	check := func(publication string, tables ...wal.Table) *preflight.Report {
		other := cfg
		other.Publication = publication
		if tables != nil {
			other.Tables = tables
		}
		return preflight.Check(t.Context(), other)
	}
	preflighttest.WantFinding(t, check("missing"), "publication", advice.Fail, "does not exist", "cdc-relay setup")
	preflighttest.WantFinding(t, check("removals"), "publication.tables", advice.Fail, "does not publish inserts", "SET (publish = 'insert, delete')")
	preflighttest.WantFinding(t, check("nothing"), "publication.tables", advice.Fail, `ALTER PUBLICATION "nothing" ADD TABLE "public"."outbox"`)
	more := check("more")
	preflighttest.WantFinding(t, more, "publication", advice.Warn, "also publishes update", "SET (publish = 'insert')")
	preflighttest.WantFinding(t, more, "publication.tables", advice.Warn, "1 table more", "public.other")
	cfg.Wants = []wal.Wants{{}}
	preflighttest.WantFinding(t, check("more"), "publication", advice.Warn, "if Debezium created it, leave it", "SET (publish = 'insert')")
	cfg.Wants = nil
	part := check("Part")
	// The statements leave the other table where it is.
	preflighttest.WantFinding(t, part, "publication.row_filter", advice.Warn, "public.outbox", "never delivered",
		`ALTER PUBLICATION "Part" DROP TABLE "public"."outbox"; ALTER PUBLICATION "Part" ADD TABLE "public"."outbox" ("id", "payload"); COMMIT`)
	preflighttest.WantFinding(t, part, "publication.column_list", advice.Warn, "leaves out 2", "aggregateType, feeling",
		`ALTER PUBLICATION "Part" DROP TABLE "public"."outbox"; ALTER PUBLICATION "Part" ADD TABLE "public"."outbox" WHERE (`)
	if got := part.Tables[0].Unlisted; strings.Join(got, ",") != "aggregateType,feeling" {
		t.Errorf("unlisted columns %q", got)
	}
	preflighttest.WantFinding(t, check("everything"), "publication.tables", advice.Warn, "FOR ALL TABLES")
	preflighttest.WantFinding(t, check("everything", wal.Table{Schema: "public", Name: "volatile"}), "table", advice.Fail, "UNLOGGED", "SET LOGGED")
	preflighttest.WantFinding(t, check("everything", wal.Table{Schema: "public", Name: "Outbox"}), "table", advice.Fail, "does not exist", "--create-table")
}

func TestCheck_PartitionsUnderTheirOwnNames(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	db.Exec(t, `CREATE TABLE parted (id int, at date) PARTITION BY RANGE (at); CREATE TABLE parted_1 PARTITION OF parted DEFAULT`)
	db.Exec(t, `CREATE PUBLICATION leaves FOR TABLE parted WITH (publish = 'insert')`)
	cfg.Publication, cfg.Tables = "leaves", []wal.Table{{Schema: "public", Name: "parted"}}
	report := preflight.Check(t.Context(), cfg)
	preflighttest.WantFinding(t, report, "publication.tables", advice.Fail, "publish_via_partition_root = true")
	for _, f := range report.Findings {
		if f.Check == "publication.tables" && f.Level == advice.Warn {
			t.Errorf("the table's own partition counts as a stranger: %+v", f)
		}
	}
	db.Exec(t, `CREATE TABLE other (id int, at date) PARTITION BY RANGE (at); CREATE TABLE other_1 PARTITION OF other DEFAULT`)
	db.Exec(t, `ALTER PUBLICATION leaves ADD TABLE other`)
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "publication.tables", advice.Warn, "1 table more", "public.other_1")
	db.Exec(t, `ALTER PUBLICATION leaves DROP TABLE other`)
	db.Exec(t, `ALTER PUBLICATION leaves SET (publish_via_partition_root = true)`)
	report = preflight.Check(t.Context(), cfg)
	preflighttest.WantFinding(t, report, "publication.tables", advice.OK, "public.parted")
	preflighttest.WantFinding(t, report, "table.partition_key", advice.OK)
	db.Exec(t, `CREATE UNLOGGED TABLE parted_2 PARTITION OF parted FOR VALUES FROM ('2030-01-01') TO ('2031-01-01')`)
	db.Exec(t, `CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing`)
	db.Exec(t, `CREATE FOREIGN TABLE parted_3 PARTITION OF parted FOR VALUES FROM ('2031-01-01') TO ('2032-01-01') SERVER nowhere`)
	report = preflight.Check(t.Context(), cfg)
	preflighttest.WantFinding(t, report, "table", advice.Fail, "public.parted_2", "UNLOGGED")
	preflighttest.WantFinding(t, report, "table", advice.Fail, "public.parted_3", "foreign table")
}

// A row that moves to another partition is published again as an insert.
func TestCheck_PartitionKeysThatAreUpdated(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	db.Exec(t, `CREATE TYPE phase AS ENUM ('new', 'old')`)
	for _, tt := range []struct {
		columns, by string
		level       advice.Level
		text        string
	}{
		{"done_at date, published boolean", "LIST (published)", advice.Fail, `"published"`},
		{"flag boolean", "LIST (flag)", advice.Fail, `"flag"`},
		{"published_at timestamptz", "RANGE (published_at)", advice.Fail, `"published_at"`},
		{"status text", "LIST (status)", advice.Fail, `"status"`},
		{"state text", "LIST (lower(state))", advice.Fail, `"state"`},
		{`"isArchived" int`, `LIST ("isArchived")`, advice.Fail, `"isArchived"`},
		{"kind phase", "LIST (kind)", advice.Warn, `"kind"`},
		{"created_at timestamptz, status text", "RANGE (created_at)", advice.OK, ""},
		{"estate text", "LIST (lower(estate))", advice.OK, ""},
		{"tenant int", "HASH (tenant)", advice.OK, ""},
	} {
		name := harness.Unique(t, "parted")
		db.Exec(t, fmt.Sprintf(`CREATE TABLE %s (%s) PARTITION BY %s`, name, tt.columns, tt.by))
		other := cfg
		other.Tables = []wal.Table{{Schema: "public", Name: name}}
		preflighttest.WantFinding(t, preflight.Check(t.Context(), other), "table.partition_key", tt.level, tt.text)
	}
	db.Exec(t, `CREATE TABLE deep (at date, status text) PARTITION BY RANGE (at); CREATE TABLE deep_1 PARTITION OF deep DEFAULT PARTITION BY LIST (status)`)
	cfg.Tables = []wal.Table{{Schema: "public", Name: "deep"}}
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "table.partition_key", advice.Fail, `"status"`)
}

func TestCheck_ReplicaIdentityTrap(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	db.Exec(t, `CREATE TABLE bare (id int, at date); CREATE TABLE parted (id int, at date) PARTITION BY RANGE (at); CREATE TABLE parted_1 PARTITION OF parted DEFAULT`)
	db.Exec(t, `ALTER PUBLICATION cdc_relay SET TABLE bare, outbox`)
	bare := cfg
	bare.Tables = []wal.Table{{Schema: "public", Name: "bare"}}
	preflighttest.WantFinding(t, preflight.Check(t.Context(), bare), "table.replica_identity", advice.OK)
	db.Exec(t, `CREATE PUBLICATION somebody FOR TABLE bare, outbox, parted`)
	preflighttest.WantFinding(t, preflight.Check(t.Context(), bare), "table.replica_identity", advice.Fail, `publication "somebody" publishes UPDATE and DELETE`, "SET (publish = 'insert')")
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "table.replica_identity", advice.OK)
	parted := cfg
	parted.Tables = []wal.Table{{Schema: "public", Name: "parted"}}
	preflighttest.WantFinding(t, preflight.Check(t.Context(), parted), "table.replica_identity", advice.Fail, "public.parted")
	db.Exec(t, `ALTER TABLE bare REPLICA IDENTITY FULL`)
	preflighttest.WantFinding(t, preflight.Check(t.Context(), bare), "table.replica_identity", advice.OK)
}

func TestCheck_TriggersAndRules(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	db.Exec(t, `CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	db.Exec(t, `CREATE TRIGGER harmless AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION meddle()`)
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "table.triggers", advice.OK)
	db.Exec(t, `CREATE TRIGGER "Swallow" BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION meddle()`)
	db.Exec(t, `CREATE TABLE elsewhere (id uuid)`)
	db.Exec(t, `CREATE RULE beside AS ON INSERT TO outbox DO ALSO INSERT INTO elsewhere VALUES (NEW.id)`)
	db.Exec(t, `CREATE RULE diverted AS ON INSERT TO outbox DO INSTEAD INSERT INTO elsewhere VALUES (NEW.id)`)
	report := preflight.Check(t.Context(), cfg)
	preflighttest.WantFinding(t, report, "table.triggers", advice.Warn, `trigger "Swallow"`)
	preflighttest.WantFinding(t, report, "table.triggers", advice.Warn, `rule "beside"`)
	preflighttest.WantFinding(t, report, "table.triggers", advice.Fail, `rule "diverted"`, `DROP RULE "diverted"`)
}

func TestCheck_Slot(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	other := cfg
	other.Slot = "nobody_made_it"
	preflighttest.WantFinding(t, preflight.Check(t.Context(), other), "slot", advice.Fail, "does not exist", "cdc-relay setup")

	for plugin, text := range map[string]string{"'test_decoding'": "test_decoding", "'pgoutput', false, true": "two_phase"} {
		other.Slot = harness.Unique(t, "slot")
		db.Exec(t, fmt.Sprintf(`SELECT pg_create_logical_replication_slot('%s', %s)`, other.Slot, plugin))
		preflighttest.WantFinding(t, preflight.Check(t.Context(), other), "slot", advice.Fail, text)
	}
	foreign := harness.Postgres(t, "15")
	foreign.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, foreign.Name)
	other.Slot = foreign.Name
	preflighttest.WantFinding(t, preflight.Check(t.Context(), other), "slot", advice.Fail, foreign.Name, db.Name)
}

func TestCheck_NamesASecondRelayOnTheSlot(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.AsReader(t, db, postgrestest.OutboxDatabase(t, db))
	owner := cfg
	owner.ApplicationName = "the-other-one"
	conn := postgrestest.Open(t, owner, true)
	if err := pglogrepl.StartReplication(t.Context(), conn, cfg.Slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'cdc_relay'"},
	}); err != nil {
		t.Fatal(err)
	}
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.owner", advice.Warn, "the-other-one", fmt.Sprint(conn.PID()), "postgres.slot")
}

// As step 1 of a takeover has it: the connector still runs.
func TestCheck_KnowsDebeziumOnTheSlot(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.AsReader(t, db, postgrestest.OutboxDatabase(t, db))
	db.Exec(t, `ALTER PUBLICATION cdc_relay SET (publish = 'insert, update, delete, truncate')`)
	owner := cfg
	owner.ApplicationName = "Debezium Streaming"
	conn := postgrestest.Open(t, owner, true)
	if err := pglogrepl.StartReplication(t.Context(), conn, cfg.Slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'cdc_relay'"},
	}); err != nil {
		t.Fatal(err)
	}
	report := preflight.Check(t.Context(), cfg)
	preflighttest.WantFinding(t, report, "slot.owner", advice.Warn, "Debezium holds", "application_name Debezium Streaming", "cdc-relay takeover", "once the connector is stopped")
	preflighttest.WantFinding(t, report, "publication", advice.OK, "also publishes update, delete, truncate", "stays as it is")
	for _, f := range report.Findings {
		if strings.Contains(f.Advice, "ALTER PUBLICATION") || strings.Contains(f.Advice, "choose another postgres.slot") {
			t.Errorf("advice against the takeover: %+v", f)
		}
	}
}

func TestCheck_ServerWithoutLogicalWALOrRoom(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{
		"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1",
	}})
	cfg := postgrestest.Config(t, db)
	report := preflight.Check(t.Context(), cfg)
	preflighttest.WantFinding(t, report, "postgres.wal_level", advice.Fail, "replica", "wal_level = logical")
	preflighttest.WantFinding(t, report, "postgres.slots_free", advice.OK, "1 of 1")
	preflighttest.WantFinding(t, report, "postgres.senders_free", advice.Warn, "1 of 1")

	db.Exec(t, `SELECT pg_create_physical_replication_slot('taken')`)
	for harness.Query[bool](t, db, `SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'walsender'`) {
		// the server ends the session of the check a moment after its client
	}
	busy := cfg
	busy.ApplicationName = "busy"
	postgrestest.Open(t, busy, true)
	report = preflight.Check(t.Context(), cfg)
	preflighttest.WantFinding(t, report, "postgres.slots_free", advice.Fail, "1 slot allowed by max_replication_slots, all in use", "max_replication_slots")
	preflighttest.WantFinding(t, report, "postgres.senders_free", advice.Fail, "all 1 WAL senders", "max_wal_senders")
	preflighttest.WantFinding(t, report, "postgres.replication", advice.Fail, "max_wal_senders")
}

// A limit of 0 is not one that others have used up: nothing can be dropped to make room.
func TestCheck_ServerThatAllowsNoSlots(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{"wal_level": "logical", "max_replication_slots": "0"}})
	report := preflight.Check(t.Context(), postgrestest.Config(t, db))
	preflighttest.WantFinding(t, report, "postgres.slots_free", advice.Fail,
		"the server allows no replication slots (max_replication_slots is 0)", "ALTER SYSTEM SET max_replication_slots = 10", "restart the server")
}

func TestCheck_Standby(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{})
	cfg := postgrestest.Config(t, db)
	db.Exec(t, `COPY (SELECT 1) TO PROGRAM 'cat > standby.signal'`)
	if err := db.Server.Restart(t.Context(), sandbox.Fast); err != nil {
		t.Fatal(err)
	}
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "postgres.connection", advice.Fail, "primary")
	separator := "?"
	if strings.Contains(cfg.URL, "?") {
		separator = "&"
	}
	cfg.URL += separator + "target_session_attrs=standby"
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "postgres.primary", advice.Fail, "standby")
	db.Exec(t, `SELECT pg_promote()`) // so that its database can be dropped
}

func TestCheck_HeadroomOfALimitedSlot(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{})
	cfg := postgrestest.OutboxDatabase(t, db)
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.wal", advice.OK, "unlimited")
	alter(t, db, "max_slot_wal_keep_size", "10GB")
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.wal", advice.OK, "max_slot_wal_keep_size is 10.0 GiB")

	alter(t, db, "max_slot_wal_keep_size", "400MB")
	ctx, stop := context.WithCancel(t.Context())
	writing := make(chan struct{})
	conn := db.Connect(t)
	go func() {
		defer close(writing)
		for ctx.Err() == nil {
			_, _ = conn.Exec(ctx, `SELECT pg_logical_emit_message(false, 'x', repeat('x', 300000)), pg_sleep(0.03)`)
		}
	}()
	report := preflight.Check(t.Context(), cfg)
	// On a busy machine nothing may be written in the second that it looks for.
	for deadline := time.Now().Add(time.Minute); !strings.Contains(preflighttest.Findings(report), "at the present") && time.Now().Before(deadline); {
		report = preflight.Check(t.Context(), cfg)
	}
	stop()
	<-writing
	preflighttest.WantFinding(t, report, "slot.wal", advice.Warn, "400.0 MiB", "at the present", "raise max_slot_wal_keep_size")

	alter(t, db, "max_slot_wal_keep_size", "60MB")
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.wal", advice.Warn, "60.0 MiB", "raise max_slot_wal_keep_size")
	alter(t, db, "max_slot_wal_keep_size", "1MB")
	for range 3 {
		db.Exec(t, `SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000))`)
		db.Exec(t, `SELECT pg_switch_wal()`)
	}
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.wal", advice.Fail, "holds more WAL")
	db.Exec(t, `CHECKPOINT`)
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot", advice.Fail, "invalidated", "teardown --yes")
}

func TestCheck_SlotsThatTimeOut(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18", Settings: map[string]string{"idle_replication_slot_timeout": "2d"}})
	preflighttest.WantFinding(t, preflight.Check(t.Context(), postgrestest.OutboxDatabase(t, db)), "postgres.idle_slot_timeout", advice.Warn, "2d", "loses its slot")
}

func TestCheck_Failover(t *testing.T) {
	t.Parallel()
	old := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "15"})
	cfg := postgrestest.OutboxDatabase(t, old)
	old.Exec(t, `SELECT pg_create_physical_replication_slot('standby')`)
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.failover", advice.Warn, "before PostgreSQL 17")

	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"})
	cfg = postgrestest.OutboxDatabase(t, db)
	db.Exec(t, `SELECT pg_create_physical_replication_slot('standby')`)
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.failover", advice.Warn, "without failover")
	cfg.Slot = "with_failover"
	db.Exec(t, `SELECT pg_create_logical_replication_slot('with_failover', 'pgoutput', false, false, true)`)
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.failover", advice.Warn, "synchronized_standby_slots is empty")
	alter(t, db, "synchronized_standby_slots", "standby, gone")
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.failover", advice.Warn, `slot "gone", which does not exist, and slot "standby", which is not active: the server sends no row of `, "take the slot out of synchronized_standby_slots")
	alter(t, db, "synchronized_standby_slots", "standby")
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.failover", advice.Warn, `names slot "standby", which is not active`)
	attach(t, db, "standby")
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.failover", advice.OK, "survives")

	cfg.Slot = "cdc_relay" // which has no failover: the server waits for nobody
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.failover", advice.Warn, "without failover")
}

// The slot of the only standby may be gone, and the server waits for it all the same.
func TestCheck_TheOnlyStandbyIsGone(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18", Settings: map[string]string{"synchronized_standby_slots": "sb"}})
	cfg := postgrestest.OutboxDatabase(t, db)
	cfg.Slot = "with_failover"
	db.Exec(t, `SELECT pg_create_logical_replication_slot('with_failover', 'pgoutput', false, false, true)`)
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot.failover", advice.Warn, `names slot "sb", which does not exist`)
}

// attach streams from a physical slot as a standby does, until the test ends.
func attach(t *testing.T, db *harness.Database, slot string) {
	t.Helper()
	cfg, err := pgconn.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["replication"] = "true"
	conn, err := pgconn.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	at := harness.Query[string](t, db, "SELECT pg_current_wal_flush_lsn()::text")
	conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION SLOT " + slot + " PHYSICAL " + at})
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	if m, err := conn.Frontend().Receive(); err != nil {
		t.Fatal(err)
	} else if _, ok := m.(*pgproto3.CopyBothResponse); !ok {
		t.Fatalf("the server says %#v", m)
	}
}

func TestCheck_CommitsThatWouldWaitForUs(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{"synchronous_commit": "local"}})
	cfg := postgrestest.OutboxDatabase(t, db)
	for _, tt := range []struct {
		names string
		level advice.Level
	}{
		{"*", advice.Fail}, {"ANY 1 (a, b)", advice.OK}, {`FIRST 1 (a, "CDC-relay")`, advice.Fail}, {"a,b", advice.OK},
	} {
		alter(t, db, "synchronous_standby_names", tt.names)
		preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "postgres.synchronous", tt.level)
	}
	alter(t, db, "synchronous_standby_names", "sneaky")
	owner := cfg
	owner.ApplicationName, owner.WalSenderTimeout = "sneaky", time.Hour // this test answers nothing
	conn := postgrestest.Open(t, owner, true)
	if err := pglogrepl.StartReplication(t.Context(), conn, cfg.Slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'cdc_relay'"},
	}); err != nil {
		t.Fatal(err)
	}
	// The server ranks a sender once it has reported a position.
	if err := pglogrepl.SendStandbyStatusUpdate(t.Context(), conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: 1}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		report := preflight.Check(t.Context(), cfg)
		if strings.Contains(preflighttest.Findings(report), "counts as a synchronous standby") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a stream that is a synchronous standby is not noticed:\n%s", preflighttest.Findings(report))
		}
	}
}

func TestCheck_DatabaseWithoutAnEncoding(t *testing.T) {
	db := harness.Postgres(t, "15")
	name := harness.Unique(t, "ascii")
	db.Exec(t, `CREATE DATABASE `+name+` ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
	cfg := postgrestest.Config(t, db)
	cfg.URL = db.Server.URL(name)
	preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "postgres.encoding", advice.Warn, "SQL_ASCII")
	db.Exec(t, `DROP DATABASE `+name+` WITH (FORCE)`)
}

// A pooler answers the login itself, with a process number of its own making.
func TestCheck_NoticesAPoolerInBetween(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	cfg.URL = db.Server.URL(db.Name)
	server, err := url.Parse(cfg.URL)
	if err != nil {
		t.Fatal(err)
	}
	if mode := server.Query().Get("sslmode"); mode != "" && mode != "disable" {
		harness.NotHere(t, "the server speaks TLS, which cannot be changed on the way")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go pool(listener, server.Host)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	cfg.URL = fmt.Sprintf("postgres://%s@127.0.0.1:%s/%s?sslmode=disable", server.User.Username(), port, db.Name)
	report := preflight.Check(t.Context(), cfg)
	preflighttest.WantFinding(t, report, "postgres.pooler", advice.Warn, "pooler", "connect to the server itself")
	preflighttest.WantFinding(t, report, "postgres.replication", advice.Warn, "wal_sender_timeout is off")
}

// pool passes connections on, changes the process number in each login and takes
// wal_sender_timeout out of it.
func pool(listener net.Listener, target string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", target)
			if err != nil {
				return
			}
			defer server.Close()
			go func() {
				defer server.Close()
				startup := make([]byte, 4096)
				n, err := client.Read(startup)
				if err != nil {
					return
				}
				startup = bytes.Replace(startup[:n], []byte("wal_sender_timeout\x0015000"), []byte("wal_sender_timeout\x0000000"), 1)
				if _, err := server.Write(startup); err != nil {
					return
				}
				_, _ = io.Copy(server, client)
			}()
			head := make([]byte, 5)
			for {
				if _, err := io.ReadFull(server, head); err != nil {
					return
				}
				body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
				if _, err := io.ReadFull(server, body); err != nil {
					return
				}
				if head[0] == 'K' {
					binary.BigEndian.PutUint32(body, 1<<30)
				}
				if _, err := client.Write(slices.Concat(head, body)); err != nil {
					return
				}
			}
		}()
	}
}
