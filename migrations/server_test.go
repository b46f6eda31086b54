package migrations_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// connect gives a connection to a server of the test's own, downloaded if the
// machine has none. Where none can be had the test is skipped.
func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	harness.NeedsServer(t, "PostgreSQL")
	server, err := sandbox.StartPostgres(ctx, sandbox.PostgresOptions{Log: os.Stderr})
	if err != nil {
		harness.Missing(t, "PostgreSQL", err, "install PostgreSQL (initdb and postgres)")
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestServer_TakesWhatIsRendered(t *testing.T) {
	conn := connect(t)
	exec(t, conn, `CREATE SCHEMA "Odd schema"`, nil)
	for _, preset := range migrations.Presets() {
		for _, name := range []migrations.Name{{Schema: "public", Table: "outbox_" + preset}, {Schema: "Odd schema", Table: strings.Repeat("Ü\"", 21)}} {
			t.Run(preset+" "+name.Schema, func(t *testing.T) { upDownUp(t, conn, preset, name) })
		}
	}
	t.Run("polling", func(t *testing.T) { testPollingTable(t, conn) })
	t.Run("ours", func(t *testing.T) { testOurTable(t, conn) })
	t.Run("publication", func(t *testing.T) { testPublication(t, conn) })
	t.Run("role", func(t *testing.T) { testRole(t, conn) })
}

func upDownUp(t *testing.T, conn *pgx.Conn, preset string, name migrations.Name) {
	up, err := migrations.Table(preset, name.Schema, name.Table)
	exec(t, conn, up, err)
	down, err := migrations.DropTable(preset, name.Schema, name.Table)
	exec(t, conn, down, err)
	exec(t, conn, up, nil)
	if _, err := conn.Exec(t.Context(), up); err == nil {
		t.Error("a table that is there is passed over")
	}
	exec(t, conn, down, nil)
	if preset == migrations.DefaultPreset || preset == migrations.Polling || preset == "debezium" {
		testComments(t, conn, preset, name)
	}
}

// testComments looks at the tables that are not as a framework documents them.
func testComments(t *testing.T, conn *pgx.Conn, preset string, name migrations.Name) {
	up, err := migrations.Table(preset, name.Schema, name.Table)
	exec(t, conn, up, err)
	bare := query(t, conn, `SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND col_description(attrelid, attnum) IS NULL`, ident(name))
	if bare != "" {
		t.Errorf("columns without a comment: %s", bare)
	}
	if query(t, conn, `SELECT obj_description($1::regclass, 'pg_class')`, ident(name)) == "" {
		t.Error("table without a comment")
	}
	down, err := migrations.DropTable(preset, name.Schema, name.Table)
	exec(t, conn, down, err)
}

// testOurTable holds the table to what a relay needs: each index and each column
// beyond that is work at every insert.
func testOurTable(t *testing.T, conn *pgx.Conn) {
	up, err := migrations.Table("", "public", "outbox")
	exec(t, conn, up, err)
	testTable(t, conn, `id uuid not null gen_random_uuid()
aggregate_type text not null -
aggregate_id text not null -
event_type text not null -
payload jsonb not null -
headers jsonb null -
traceparent text null -
idempotency_key text null -
created_at timestamp with time zone not null now()`,
		"unique btree (id)",
		"unique btree (idempotency_key) WHERE (idempotency_key IS NOT NULL)")
	testIdempotency(t, conn)
}

func testPollingTable(t *testing.T, conn *pgx.Conn) {
	up, err := migrations.Table(migrations.Polling, "public", "outbox")
	exec(t, conn, up, err)
	testTable(t, conn, `id uuid not null gen_random_uuid()
aggregate_type character varying(100) not null -
aggregate_id uuid not null -
event_type character varying(100) not null -
payload jsonb not null -
idempotency_key character varying(255) null -
created_at timestamp with time zone not null now()
published_at timestamp with time zone null -
retry_count integer null 0
last_error text null -`,
		"btree (aggregate_id, created_at)",
		"btree (created_at) WHERE (published_at IS NULL)",
		"btree (idempotency_key) WHERE (idempotency_key IS NOT NULL)",
		"unique btree (id)",
		"unique btree (idempotency_key)")
	testIdempotency(t, conn)
	exec(t, conn, "DROP TABLE outbox", nil)
}

// testTable compares the columns and all indexes of outbox.
func testTable(t *testing.T, conn *pgx.Conn, columns string, indexes ...string) {
	t.Helper()
	got := query(t, conn, `SELECT attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN 'not null' ELSE 'null' END, coalesce(pg_get_expr(adbin, adrelid), '-')
		FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
		WHERE attrelid = 'outbox'::regclass AND attnum > 0 ORDER BY attnum`)
	if got != columns {
		t.Errorf("columns:\n%s\nwant:\n%s", got, columns)
	}
	got = query(t, conn, `SELECT def FROM pg_index, concat(CASE WHEN indisunique THEN 'unique ' END, regexp_replace(pg_get_indexdef(indexrelid), '^.* USING ', '')) AS def
		WHERE indrelid = 'outbox'::regclass ORDER BY def COLLATE "C"`)
	if want := strings.Join(indexes, "\n"); got != want {
		t.Errorf("indexes:\n%s\nwant:\n%s", got, want)
	}
}

func testIdempotency(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	const insert = `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('order', gen_random_uuid(), 'created', '{}', %s)`
	exec(t, conn, fmt.Sprintf(insert, "NULL")+";"+fmt.Sprintf(insert, "NULL")+";"+fmt.Sprintf(insert, "'k'"), nil)
	if _, err := conn.Exec(t.Context(), fmt.Sprintf(insert, "'k'")); err == nil {
		t.Error("the same idempotency key twice")
	}
}

func testPublication(t *testing.T, conn *pgx.Conn) {
	exec(t, conn, `CREATE TABLE parted (id int) PARTITION BY RANGE (id)`, nil)
	for _, viaRoot := range []bool{false, true} {
		cfg := postgres.Config{
			Publication: fmt.Sprintf("Pub %v", viaRoot),
			Tables:      []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: "parted"}},
		}
		exec(t, conn, provision.PublicationSQL(cfg, viaRoot, nil), nil)
	}
	got := query(t, conn, `SELECT pubname, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_publication ORDER BY pubname`)
	if want := "Pub false true false false false false\nPub true true false false false true"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := query(t, conn, `SELECT count(*) FROM pg_publication_tables WHERE tablename IN ('outbox', 'parted') AND pubname = 'Pub true'`); got != "2" {
		t.Errorf("%s tables", got)
	}
}

func testRole(t *testing.T, conn *pgx.Conn) {
	var roles []migrations.Part
	for _, name := range []string{"Streaming role", "reading"} {
		role, _, err := migrations.ServiceRole("self", migrations.Login{Role: name, Database: "postgres"})
		exec(t, conn, role.Up, err)
		roles = append(roles, role)
	}
	read, err := migrations.Read("reading", []migrations.Name{{Schema: "public", Table: "outbox"}})
	exec(t, conn, read.Up, err)
	got := query(t, conn, `SELECT rolname, rolcanlogin, rolreplication, rolsuper, rolcreatedb, rolcreaterole, rolbypassrls,
		has_table_privilege(oid, 'outbox', 'SELECT'), has_table_privilege(oid, 'outbox', 'INSERT') FROM pg_roles WHERE rolname IN ('Streaming role', 'reading') ORDER BY 1`)
	if want := "Streaming role true true false false false false false false\nreading true true false false false false true false"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	exec(t, conn, read.Down, nil)
	for _, role := range roles {
		exec(t, conn, role.Down, nil)
	}
}

func exec(t *testing.T, conn *pgx.Conn, sql string, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%v in\n%s", err, sql)
	}
}

// query gives rows as lines.
func query(t *testing.T, conn *pgx.Conn, sql string, args ...any) string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		return strings.TrimSuffix(fmt.Sprintln(values...), "\n"), err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func ident(n migrations.Name) string { return pgx.Identifier{n.Schema, n.Table}.Sanitize() }
