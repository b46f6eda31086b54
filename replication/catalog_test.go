package replication

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestInspect_ReadsWhatAStreamDependsOn(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := outboxDatabase(t, db)
		cfg.WalSenderTimeout = 3 * time.Second
		catalog, err := look(t, asReplicator(t, db, cfg))
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
		if got, want := columnNames(relation), "id uuid, aggregateType varchar, feeling mood, payload jsonb"; got != want {
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
		cfg := outboxDatabase(t, db)
		if harness.Query[int](t, db, `SELECT current_setting('server_version_num')::int`) >= 150000 {
			db.Exec(t, `ALTER PUBLICATION cdc_relay SET TABLE outbox (payload, id)`)
		}
		if harness.Query[int](t, db, `SELECT current_setting('server_version_num')::int`) >= 180000 {
			db.Exec(t, `ALTER PUBLICATION cdc_relay SET TABLE outbox`)
			db.Exec(t, `ALTER PUBLICATION cdc_relay SET (publish_generated_columns = stored)`)
		}
		catalog, err := look(t, cfg)
		if err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `INSERT INTO outbox (id, "aggregateType", payload) VALUES (gen_random_uuid(), 'a', '{}')`)
		conn := open(t, cfg, true)
		if err := pglogrepl.StartReplication(t.Context(), conn, cfg.Slot, 0, pglogrepl.StartReplicationOptions{
			PluginArgs: []string{"proto_version '1'", "publication_names '" + doubleQuoted(cfg.Publication) + "'"},
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
	base := outboxDatabase(t, db)
	db.Exec(t, `CREATE TABLE elsewhere (id int); CREATE UNLOGGED TABLE unlogged (id int); CREATE VIEW seen AS SELECT 1 AS id`)
	db.Exec(t, `CREATE TABLE parted (id int, at date) PARTITION BY RANGE (at); CREATE TABLE parted_1 PARTITION OF parted DEFAULT`)
	db.Exec(t, `CREATE PUBLICATION "no inserts" FOR TABLE outbox WITH (publish = 'update, delete')`)
	db.Exec(t, `CREATE PUBLICATION leaves FOR TABLE parted WITH (publish = 'insert')`)
	db.Exec(t, `CREATE PUBLICATION roots FOR TABLE parted WITH (publish = 'insert', publish_via_partition_root = true)`)
	slot := func(call string) string {
		name := harness.Unique(t, "slot")
		db.Exec(t, fmt.Sprintf(call, singleQuoted(name)))
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
		change func(*Config)
		kind   ErrorKind
		reason string
		texts  []string
	}{
		{"no slot", func(c *Config) { c.Slot = "nobody_made_it" }, KindRefused, ReasonSlotMissing, []string{`slot "nobody_made_it"`, "does not exist", "cdc-relay setup"}},
		{"no slot name", func(c *Config) { c.Slot = `x'; DROP TABLE outbox; --` }, KindRefused, ReasonConfiguration, []string{"a-z"}},
		{"slot of another plugin", func(c *Config) { c.Slot = decoding }, KindRefused, ReasonSlotUnusable, []string{"test_decoding"}},
		{"slot with two_phase", func(c *Config) { c.Slot = prepared }, KindRefused, ReasonSlotUnusable, []string{"two_phase"}},
		{"physical slot", func(c *Config) { c.Slot = physical }, KindRefused, ReasonSlotUnusable, []string{"physical"}},
		{"slot of another database", func(c *Config) { c.Slot = foreign.Name }, KindRefused, ReasonSlotUnusable, []string{foreign.Name, db.Name}},
		{"no publication", func(c *Config) { c.Publication = `we"ird'` }, KindRefused, ReasonPublicationMissing, []string{"does not exist", "cdc-relay setup"}},
		{"publication without inserts", func(c *Config) { c.Publication = "no inserts" }, KindRefused, ReasonTableUnpublished, []string{`ALTER PUBLICATION "no inserts" SET (publish = 'insert')`}},
		{"no table", func(c *Config) { c.Tables = []Table{{"public", "Outbox"}} }, KindRefused, ReasonTableMissing, []string{`table public."Outbox"`, "--create-table"}},
		{"no schema", func(c *Config) { c.Tables = []Table{{"app", "outbox"}} }, KindRefused, ReasonTableMissing, []string{"app.outbox"}},
		{"table not published", func(c *Config) { c.Tables = append(c.Tables, Table{"public", "elsewhere"}) }, KindRefused, ReasonTableUnpublished, []string{`ALTER PUBLICATION "cdc_relay" ADD TABLE "public"."elsewhere"`}},
		{"unlogged table", func(c *Config) { c.Tables[0].Name = "unlogged" }, KindRefused, ReasonTableChanged, []string{"UNLOGGED", `ALTER TABLE "public"."unlogged" SET LOGGED`}},
		{"view", func(c *Config) { c.Tables[0].Name = "seen" }, KindRefused, ReasonTableChanged, []string{"a view"}},
		{"partitions under their own names", func(c *Config) { c.Publication, c.Tables[0].Name = "leaves", "parted" }, KindRefused, ReasonTableUnpublished, []string{`ALTER PUBLICATION "leaves" SET (publish_via_partition_root = true)`}},
		{"leaf under the root's name", func(c *Config) { c.Publication, c.Tables[0].Name = "roots", "parted_1" }, KindRefused, ReasonTableUnpublished, []string{"public.parted_1", "configure the table public.parted"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := base
			cfg.Tables = []Table{{"public", "outbox"}}
			test.change(&cfg)
			_, err := look(t, cfg)
			wantError(t, err, test.kind, test.reason, test.texts...)
		})
	}
	for publication, table := range map[string]string{"leaves": "parted_1", "roots": "parted"} {
		cfg := base
		cfg.Publication, cfg.Tables = publication, []Table{{"public", table}}
		if _, err := look(t, cfg); err != nil {
			t.Errorf("%s with %s: %v", publication, table, err)
		}
	}
}

func dropSlot(t *testing.T, db *harness.Database, name string) {
	t.Helper()
	ctx := context.Background()
	conn, err := connect(ctx, Config{URL: db.Server.URL("postgres")}, false)
	if err != nil {
		t.Error(err)
		return
	}
	defer closeQuietly(conn)
	if err := (querier{ctx: ctx, conn: conn}).exec("SELECT pg_drop_replication_slot(" + singleQuoted(name) + ")"); err != nil {
		t.Error(err)
	}
}

func TestInspect_RefusesAServerWithoutLogicalWAL(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{"wal_level": "replica"}})
	cfg := config(t, db)
	_, err := look(t, cfg)
	wantError(t, err, KindRefused, ReasonWALLevel, "wal_level is replica", "wal_level = logical")
	_, err = Setup(t.Context(), cfg, SetupOptions{CreateTable: func(Table) (string, error) { return "CREATE TABLE outbox (id int)", nil }})
	wantError(t, err, KindRefused, ReasonWALLevel)
	if harness.Query[bool](t, db, `SELECT EXISTS (SELECT FROM pg_class WHERE relname = 'outbox')`) {
		t.Error("setup made a table before it saw that it cannot make the slot")
	}
}

func TestInspect_NamesTheOwnerOfABusySlot(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := asReplicator(t, db, outboxDatabase(t, db))
		owner := cfg
		owner.ApplicationName = "the-other-one"
		conn := open(t, owner, true)
		if err := pglogrepl.StartReplication(t.Context(), conn, cfg.Slot, 0, pglogrepl.StartReplicationOptions{
			PluginArgs: []string{"proto_version '1'", "publication_names 'cdc_relay'"},
		}); err != nil {
			t.Fatal(err)
		}
		_, err := look(t, cfg)
		wantError(t, err, KindBusy, ReasonSlotInUse, cfg.Slot, fmt.Sprintf("pid %d", conn.PID()), "application_name the-other-one", "client_addr 127.0.0.1")

		_, err = Teardown(t.Context(), cfg, true)
		wantError(t, err, KindBusy, ReasonSlotInUse, "drop slot", "the-other-one", "stop that one first")
	})
}

func TestInspect_KnowsALostSlot(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{
		"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB",
	}})
	cfg := outboxDatabase(t, db)
	for range 4 {
		db.Exec(t, `SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000))`)
		db.Exec(t, `SELECT pg_switch_wal()`)
		db.Exec(t, `CHECKPOINT`)
	}
	_, err := look(t, cfg)
	wantError(t, err, KindLost, ReasonSlotLost, cfg.Slot, "invalidated", "teardown --yes")

	probe := NewProbe(cfg)
	defer probe.Close()
	snapshot, err := probe.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, snapshot.Drift, KindLost, ReasonSlotLost)
	if snapshot.Slot.WALStatus != "lost" {
		t.Errorf("WAL status %q", snapshot.Slot.WALStatus)
	}
	_, err = Setup(t.Context(), cfg, SetupOptions{})
	wantError(t, err, KindLost, ReasonSlotLost)
}

func TestInspect_WarnsOfWhatMaySurprise(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := outboxDatabase(t, db)
	db.Exec(t, `CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY); CREATE TABLE d (id int PRIMARY KEY)`)
	db.Exec(t, `ALTER PUBLICATION cdc_relay SET TABLE outbox (id, payload) WHERE (id IS NOT NULL), a, b, c, d`)
	db.Exec(t, `ALTER PUBLICATION cdc_relay SET (publish = 'insert, truncate')`)
	catalog, err := look(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(catalog.Warnings, "\n")
	for _, want := range []string{"row filter on public.outbox", "2 of the 4 columns of public.outbox", "4 tables more", "(public.a, public.b, public.c, …)", "also publishes truncate"} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning has %q:\n%s", want, all)
		}
	}
	if got := columnNames(catalog.Relations[0]); got != "id uuid, payload jsonb" {
		t.Errorf("columns %s", got)
	}
	db.Exec(t, `CREATE PUBLICATION everything FOR ALL TABLES WITH (publish = 'insert')`)
	cfg.Publication = "everything"
	if _, err := look(t, cfg); err != nil {
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
