package catalog_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/teardown"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestInspect_ReadsWhatAStreamDependsOn(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.OutboxDatabase(t, db)
		cfg.WalSenderTimeout = 3 * time.Second
		catalog, err := postgrestest.Inspect(t, postgrestest.AsReplicator(t, db, cfg))
		if err != nil {
			t.Fatal(err)
		}
		if major, _, _ := strings.Cut(db.Version, "."); fmt.Sprint(catalog.ServerVersion/10000) != major {
			t.Errorf("server version %d of %s", catalog.ServerVersion, db.Version)
		}
		if catalog.SystemID != harness.Query[string](t, db, `SELECT system_identifier::text FROM pg_control_system()`) || catalog.Timeline != 1 {
			t.Errorf("system %q, timeline %d", catalog.SystemID, catalog.Timeline)
		}
		confirmed := harness.Query[string](t, db, `SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, cfg.Slot)
		if catalog.Confirmed.String() != confirmed || catalog.WALEnd < catalog.Confirmed {
			t.Errorf("confirmed %s, want %s; WAL end %s", catalog.Confirmed, confirmed, catalog.WALEnd)
		}
		if catalog.SenderTimeout != cfg.WalSenderTimeout {
			t.Errorf("wal_sender_timeout %s", catalog.SenderTimeout)
		}
		if s := catalog.Slot; s.Active || s.WALStatus != "reserved" || s.Restart == 0 || s.Restart > s.Confirmed {
			t.Errorf("slot %+v", s)
		}
		relation := catalog.Relations[0]
		oid := harness.Query[uint32](t, db, `SELECT 'public.outbox'::regclass::oid`)
		if relation.OID != oid || relation.Namespace != "public" || relation.Name != "outbox" || relation.Table != 0 {
			t.Errorf("relation %+v", relation)
		}
		if got, want := postgrestest.ColumnNames(relation), "id uuid, aggregateType varchar, feeling mood, payload jsonb"; got != want {
			t.Errorf("columns %s, want %s", got, want)
		}
		if mod := relation.Columns[1].TypeMod; mod != 104 {
			t.Errorf("type modifier of varchar(100): %d", mod)
		}
	})
}

// A stream announces what inspect promised: same columns, same order.
func TestInspect_ColumnsAreThoseOfTheStream(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.OutboxDatabase(t, db)
		if harness.Query[int](t, db, `SELECT current_setting('server_version_num')::int`) >= 150000 {
			db.Exec(t, `ALTER PUBLICATION cdc_relay SET TABLE outbox (payload, id)`)
		}
		if harness.Query[int](t, db, `SELECT current_setting('server_version_num')::int`) >= 180000 {
			db.Exec(t, `ALTER PUBLICATION cdc_relay SET TABLE outbox`)
			db.Exec(t, `ALTER PUBLICATION cdc_relay SET (publish_generated_columns = stored)`)
		}
		catalog, err := postgrestest.Inspect(t, cfg)
		if err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `INSERT INTO outbox (id, "aggregateType", payload) VALUES (gen_random_uuid(), 'a', '{}')`)
		conn := postgrestest.Open(t, cfg, true)
		if err := pglogrepl.StartReplication(t.Context(), conn, cfg.Slot, 0, pglogrepl.StartReplicationOptions{
			PluginArgs: []string{"proto_version '1'", "publication_names '" + wal.QuoteIdentifier(cfg.Publication) + "'"},
		}); err != nil {
			t.Fatal(err)
		}
		announced := firstRelation(t, conn)
		var names []string
		for _, column := range announced.Columns {
			names = append(names, fmt.Sprint(column.Name, " ", column.DataType, " ", column.TypeModifier))
		}
		var promised []string
		for _, column := range catalog.Relations[0].Columns {
			promised = append(promised, fmt.Sprint(column.Name, " ", column.Type, " ", column.TypeMod))
		}
		if got, want := strings.Join(promised, ", "), strings.Join(names, ", "); got != want || announced.RelationID != catalog.Relations[0].OID {
			t.Errorf("promised %s\nannounced %s", got, want)
		}
	})
}

func TestInspect_RefusesWhatCannotBeStreamed(t *testing.T) {
	db := harness.Postgres(t, "15")
	base := postgrestest.OutboxDatabase(t, db)
	db.Exec(t, `CREATE TABLE elsewhere (id int); CREATE UNLOGGED TABLE unlogged (id int); CREATE VIEW seen AS SELECT 1 AS id`)
	db.Exec(t, `CREATE TABLE parted (id int, at date) PARTITION BY RANGE (at); CREATE TABLE parted_1 PARTITION OF parted DEFAULT`)
	db.Exec(t, `CREATE PUBLICATION "no inserts" FOR TABLE outbox WITH (publish = 'update, delete')`)
	db.Exec(t, `CREATE PUBLICATION leaves FOR TABLE parted WITH (publish = 'insert')`)
	db.Exec(t, `CREATE PUBLICATION roots FOR TABLE parted WITH (publish = 'insert', publish_via_partition_root = true)`)
	slot := func(call string) string {
		name := harness.Unique(t, "slot")
		db.Exec(t, fmt.Sprintf(call, postgres.QuoteLiteral(name)))
		return name
	}
	decoding := slot(`SELECT pg_create_logical_replication_slot(%s, 'test_decoding')`)
	prepared := slot(`SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, true)`)
	physical := slot(`SELECT pg_create_physical_replication_slot(%s)`)
	t.Cleanup(func() { dropSlot(t, db, physical) })
	foreign := harness.Postgres(t, "15")
	foreign.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, foreign.Name)

	tests := []struct {
		name   string
		change func(*postgres.Config)
		kind   fault.Kind
		reason string
		texts  []string
	}{
		{"no slot", func(c *postgres.Config) { c.Slot = "nobody_made_it" }, fault.KindRefused, fault.ReasonSlotMissing, []string{`slot "nobody_made_it"`, "does not exist", "cdc-relay setup"}},
		{"no slot name", func(c *postgres.Config) { c.Slot = `x'; DROP TABLE outbox; --` }, fault.KindRefused, fault.ReasonConfiguration, []string{"a-z"}},
		{"slot of another plugin", func(c *postgres.Config) { c.Slot = decoding }, fault.KindRefused, fault.ReasonSlotUnusable, []string{"test_decoding"}},
		{"slot with two_phase", func(c *postgres.Config) { c.Slot = prepared }, fault.KindRefused, fault.ReasonSlotUnusable, []string{"two_phase"}},
		{"physical slot", func(c *postgres.Config) { c.Slot = physical }, fault.KindRefused, fault.ReasonSlotUnusable, []string{"physical"}},
		{"slot of another database", func(c *postgres.Config) { c.Slot = foreign.Name }, fault.KindRefused, fault.ReasonSlotUnusable, []string{foreign.Name, db.Name}},
		{"no publication", func(c *postgres.Config) { c.Publication = `we"ird'` }, fault.KindRefused, fault.ReasonPublicationMissing, []string{"does not exist", "cdc-relay setup"}},
		{"publication without inserts", func(c *postgres.Config) { c.Publication = "no inserts" }, fault.KindRefused, fault.ReasonTableUnpublished, []string{`ALTER PUBLICATION "no inserts" SET (publish = 'insert, update, delete')`}},
		{"no table", func(c *postgres.Config) { c.Tables = []wal.Table{{Schema: "public", Name: "Outbox"}} }, fault.KindRefused, fault.ReasonTableMissing, []string{`table public."Outbox"`, "--create-table"}},
		{"no schema", func(c *postgres.Config) { c.Tables = []wal.Table{{Schema: "app", Name: "outbox"}} }, fault.KindRefused, fault.ReasonTableMissing, []string{"app.outbox"}},
		{"table not published", func(c *postgres.Config) { c.Tables = append(c.Tables, wal.Table{Schema: "public", Name: "elsewhere"}) }, fault.KindRefused, fault.ReasonTableUnpublished, []string{`ALTER PUBLICATION "cdc_relay" ADD TABLE "public"."elsewhere"`}},
		{"unlogged table", func(c *postgres.Config) { c.Tables[0].Name = "unlogged" }, fault.KindRefused, fault.ReasonTableChanged, []string{"UNLOGGED", `ALTER TABLE "public"."unlogged" SET LOGGED`}},
		{"view", func(c *postgres.Config) { c.Tables[0].Name = "seen" }, fault.KindRefused, fault.ReasonTableChanged, []string{"a view"}},
		{"partitions under their own names", func(c *postgres.Config) { c.Publication, c.Tables[0].Name = "leaves", "parted" }, fault.KindRefused, fault.ReasonTableUnpublished, []string{`ALTER PUBLICATION "leaves" SET (publish_via_partition_root = true)`}},
		{"leaf under the root's name", func(c *postgres.Config) { c.Publication, c.Tables[0].Name = "roots", "parted_1" }, fault.KindRefused, fault.ReasonTableUnpublished, []string{"public.parted_1", "configure the table public.parted"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := base
			cfg.Tables = []wal.Table{{Schema: "public", Name: "outbox"}}
			test.change(&cfg)
			_, err := postgrestest.Inspect(t, cfg)
			postgrestest.WantError(t, err, test.kind, test.reason, test.texts...)
		})
	}
	for publication, table := range map[string]string{"leaves": "parted_1", "roots": "parted"} {
		cfg := base
		cfg.Publication, cfg.Tables = publication, []wal.Table{{Schema: "public", Name: table}}
		if _, err := postgrestest.Inspect(t, cfg); err != nil {
			t.Errorf("%s with %s: %v", publication, table, err)
		}
	}
}

func dropSlot(t *testing.T, db *harness.Database, name string) {
	t.Helper()
	ctx := context.Background()
	conn, err := postgres.Connect(ctx, postgres.Config{URL: db.Server.URL("postgres")}, false)
	if err != nil {
		t.Error(err)
		return
	}
	defer postgres.CloseQuietly(conn)
	if err := (postgres.Querier{Ctx: ctx, Conn: conn}).Exec("SELECT pg_drop_replication_slot(" + postgres.QuoteLiteral(name) + ")"); err != nil {
		t.Error(err)
	}
}

func TestInspect_RefusesAServerWithoutLogicalWAL(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{"wal_level": "replica"}})
	cfg := postgrestest.Config(t, db)
	_, err := postgrestest.Inspect(t, cfg)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonWALLevel, "wal_level is replica", "wal_level = logical")
	_, err = provision.Setup(t.Context(), cfg, provision.SetupOptions{CreateTable: func(wal.Table) (string, error) { return "CREATE TABLE outbox (id int)", nil }})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonWALLevel)
	if harness.Query[bool](t, db, `SELECT EXISTS (SELECT FROM pg_class WHERE relname = 'outbox')`) {
		t.Error("setup made a table before it saw that it cannot make the slot")
	}
}

func TestInspect_NamesTheOwnerOfABusySlot(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.AsReplicator(t, db, postgrestest.OutboxDatabase(t, db))
		owner := cfg
		owner.ApplicationName = "the-other-one"
		conn := postgrestest.Open(t, owner, true)
		if err := pglogrepl.StartReplication(t.Context(), conn, cfg.Slot, 0, pglogrepl.StartReplicationOptions{
			PluginArgs: []string{"proto_version '1'", "publication_names 'cdc_relay'"},
		}); err != nil {
			t.Fatal(err)
		}
		_, err := postgrestest.Inspect(t, cfg)
		postgrestest.WantError(t, err, fault.KindBusy, fault.ReasonSlotInUse, cfg.Slot, fmt.Sprintf("pid %d", conn.PID()), "application_name the-other-one", "client_addr 127.0.0.1")

		_, err = teardown.Run(t.Context(), cfg, true)
		postgrestest.WantError(t, err, fault.KindBusy, fault.ReasonSlotInUse, "drop slot", "the-other-one", "stop that one first")
	})
}

func TestInspect_KnowsALostSlot(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{
		"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB",
	}})
	cfg := postgrestest.OutboxDatabase(t, db)
	for range 4 {
		db.Exec(t, `SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000))`)
		db.Exec(t, `SELECT pg_switch_wal()`)
		db.Exec(t, `CHECKPOINT`)
	}
	_, err := postgrestest.Inspect(t, cfg)
	postgrestest.WantError(t, err, fault.KindLost, fault.ReasonSlotLost, cfg.Slot, "invalidated", "teardown --yes")

	probe := watch.NewProbe(cfg)
	defer probe.Close()
	snapshot, err := probe.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	postgrestest.WantError(t, snapshot.Drift, fault.KindLost, fault.ReasonSlotLost)
	if snapshot.Slot.WALStatus != "lost" {
		t.Errorf("WAL status %q", snapshot.Slot.WALStatus)
	}
	_, err = provision.Setup(t.Context(), cfg, provision.SetupOptions{})
	postgrestest.WantError(t, err, fault.KindLost, fault.ReasonSlotLost)
}

func TestInspect_WarnsOfWhatMaySurprise(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	db.Exec(t, `CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY); CREATE TABLE d (id int PRIMARY KEY)`)
	db.Exec(t, `ALTER PUBLICATION cdc_relay SET TABLE outbox (id, payload) WHERE (id IS NOT NULL), a, b, c, d`)
	db.Exec(t, `ALTER PUBLICATION cdc_relay SET (publish = 'insert, truncate')`)
	catalog, err := postgrestest.Inspect(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(catalog.Warnings, "\n")
	for _, want := range []string{"row filter on public.outbox", "2 of the 4 columns of public.outbox", "4 tables more", "(public.a, public.b, public.c, …)", "also publishes truncate"} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning has %q:\n%s", want, all)
		}
	}
	if got := postgrestest.ColumnNames(catalog.Relations[0]); got != "id uuid, payload jsonb" {
		t.Errorf("columns %s", got)
	}
	db.Exec(t, `CREATE PUBLICATION everything FOR ALL TABLES WITH (publish = 'insert')`)
	cfg.Publication = "everything"
	if _, err := postgrestest.Inspect(t, cfg); err != nil {
		t.Errorf("FOR ALL TABLES: %v", err)
	}
}

// firstRelation reads a copy up to the first Relation message.
func firstRelation(t *testing.T, conn *pgconn.PgConn) *pglogrepl.RelationMessage {
	t.Helper()
	for {
		message, err := conn.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		data, ok := message.(*pgproto3.CopyData)
		if !ok {
			t.Fatalf("%T in the copy", message)
		}
		if data.Data[0] != pglogrepl.XLogDataByteID {
			continue
		}
		x, err := pglogrepl.ParseXLogData(data.Data[1:])
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := pglogrepl.Parse(x.WALData)
		if err != nil {
			t.Fatal(err)
		}
		if relation, ok := decoded.(*pglogrepl.RelationMessage); ok {
			return relation
		}
	}
}
