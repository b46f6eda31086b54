package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5"
)

func TestSQL_GivesReviewedFilesForEachTool(t *testing.T) {
	for _, format := range migrations.Formats() {
		t.Run(format, func(t *testing.T) {
			file := golden(t, "sql_"+format+".golden")
			got := invoke(t, closedPorts, "sql", "--format", format, "--create-table", "--number", "42")
			got.want(t, exitOK, "", "")
			if strings.Contains(strings.ToLower(got.stdout), "password ''") {
				t.Error("shows a password")
			}
			compareGolden(t, file, got.stdout)
		})
	}
}

func TestSQL_KnowsTheStepsOfEachService(t *testing.T) {
	for _, service := range migrations.Services() {
		t.Run(service, func(t *testing.T) {
			file := golden(t, "sql_service_"+service+".golden")
			got := invoke(t, nil, "sql", "--service", service, "--set", "postgres.auth=aws_rds_iam")
			got.want(t, exitOK, "", "")
			compareGolden(t, file, got.stdout)
		})
	}
}

func TestSQL_NeedsNoCompleteConfiguration(t *testing.T) {
	invoke(t, nil, "sql").want(t, exitOK, `FOR TABLE "public"."outbox"`, "")
	got := invoke(t, nil, "sql", "--set", `outbox.table=shop."Out;box"`, "--set", "postgres.publication=Odd \"pub\"",
		"--set", "postgres.url=postgres://the%20relay@db/shop?sslmode=verify-full", "--partitioned", "--postgres-version", "17")
	got.want(t, exitOK, `CREATE PUBLICATION "Odd ""pub""" FOR TABLE "shop"."Out;box" WITH (publish = 'insert', publish_via_partition_root = true);`, "")
	got.want(t, exitOK, `CREATE ROLE "the relay" LOGIN REPLICATION;`, "")
	got.want(t, exitOK, `GRANT CONNECT ON DATABASE "shop" TO "the relay";`, "")
	got.want(t, exitOK, `'pgoutput', false, false, true);`, "")
	if without := invoke(t, nil, "sql", "--without-role").stdout; strings.Contains(without, "ROLE") || strings.Contains(without, "GRANT") {
		t.Errorf("--without-role prints\n%s", without)
	}
	for flags, want := range map[string]string{
		"--format tern":                     "allowed: plain, goose, flyway, golang-migrate, liquibase, atlas",
		"--service heroku":                  "allowed: self, rds, aurora, cloudsql, azure, supabase, neon, crunchy",
		"--preset nosuch":                   "allowed: ",
		"--number 0":                        "allowed: 1 or more",
		"--role " + strings.Repeat("x", 64): "no name",
		"--set postgres.slot=No":            "postgres.slot",
	} {
		invoke(t, nil, append([]string{"sql"}, strings.Fields(flags)...)...).want(t, exitUsage, "", want)
	}
}

func TestSQL_NeverOverwritesAMigration(t *testing.T) {
	dir := t.TempDir()
	invoke(t, closedPorts, "sql", "--format", "golang-migrate", "--out", dir).want(t, exitOK, "000001_cdc_relay.down.sql", "")
	content, err := os.ReadFile(filepath.Join(dir, "000001_cdc_relay.up.sql"))
	if err != nil || !strings.Contains(string(content), "CREATE PUBLICATION") {
		t.Errorf("%v in %s", err, content)
	}
	invoke(t, closedPorts, "sql", "--format", "golang-migrate", "--out", dir).want(t, exitUsage, "", "exists and may have been applied; choose another --number or --out, or remove it")
	invoke(t, closedPorts, "sql", "--format", "atlas", "--out", filepath.Join(dir, "new", "er")).want(t, exitOK, filepath.Join("new", "er"), "")
	invoke(t, closedPorts, "sql", "--out", filepath.Join(dir, "000001_cdc_relay.up.sql")).want(t, exitUsage, "", "--out")
}

// Only a server could tell who is a superuser, and sql asks none: it says so.
func TestSQL_SaysWhatItCannotKnowAboutTheRole(t *testing.T) {
	url := func(user string) []string {
		return []string{"CDC_RELAY_POSTGRES_URL=postgres://" + user + "127.0.0.1:1/shop"}
	}
	got := invoke(t, url("postgres@"), "sql")
	got.want(t, exitOK, "postgres.url has postgres, the administrator that a server begins with", "")
	got.want(t, exitOK, `CREATE ROLE "cdc_relay"`, "")
	if strings.Contains(got.stdout, `ROLE "postgres"`) {
		t.Error(got.stdout)
	}
	got = invoke(t, url("admin@"), "sql")
	got.want(t, exitOK, `CREATE ROLE "admin"`, "")
	got.want(t, exitOK, "No server was asked about its rights: if it is a superuser or an administrator, give the relay a role of its own instead (--role).", "")
	for _, quiet := range []result{
		invoke(t, url(""), "sql"), invoke(t, url("admin@"), "sql", "--role", "relay"), invoke(t, url("admin@"), "sql", "--without-role"), invoke(t, url("postgres@"), "sql", "--role", "relay"),
	} {
		quiet.want(t, exitOK, "", "")
		if strings.Contains(quiet.stdout, "administrator") {
			t.Error(quiet.stdout)
		}
	}
}

// psql goes on after an error, and would make the slot although the rest was rolled
// back.
func TestSQL_PlainStopsPsqlAtTheFirstError(t *testing.T) {
	got := invoke(t, closedPorts, "sql")
	got.want(t, exitOK, "\n\\set ON_ERROR_STOP on\n", "")
	set, begin := strings.Index(got.stdout, `\set`), strings.Index(got.stdout, "BEGIN;")
	if set < 0 || begin < set {
		t.Error(got.stdout)
	}
	for _, format := range migrations.Formats()[1:] {
		if text := invoke(t, closedPorts, "sql", "--format", format).stdout; strings.Contains(text, `\set`) {
			t.Errorf("%s has what only psql understands:\n%s", format, text)
		}
	}
}

// What setup would do and what sql prints are the same statements, on the server
// as in text.
func TestSQL_IsWhatSetupDoes(t *testing.T) {
	l := newLife(t)
	l.env = append(l.env, "CDC_RELAY_OUTBOX_PRESET=debezium")
	planned := invoke(t, l.env, "setup", "--dry-run", "--create-table")
	planned.want(t, exitOK, "aggregatetype", "")
	planned.want(t, exitOK, "", "")
	printed := invoke(t, l.env, "sql", "--create-table", "--postgres-version", strings.Split(l.db.Version, ".")[0])
	all := strings.Join(statements(printed.stdout), "\n")
	found := statements(planned.stdout)
	if len(found) < 3 {
		t.Fatalf("setup prints %d statements", len(found))
	}
	for _, statement := range found {
		if !strings.Contains(all, statement) {
			t.Errorf("setup prints %s, which is not in\n%s", statement, all)
		}
	}
}

// statements are those of a text, without comments, each on one line.
func statements(sql string) []string {
	var code strings.Builder
	for line := range strings.Lines(sql) {
		if !strings.HasPrefix(line, "--") {
			code.WriteString(line)
		}
	}
	var all []string
	for _, s := range strings.Split(code.String(), ";\n") {
		if s = strings.Join(strings.Fields(s), " "); s != "" {
			all = append(all, s)
		}
	}
	return all
}

// The plain form, as psql would send it; then setup finds everything there, and
// the role streams with the rights that it was given.
func TestSQL_PlainRunsAsItIs(t *testing.T) {
	l := newLife(t)
	role := harness.Unique(t, "sqlrole")
	_, host, _ := strings.Cut(l.db.URL, "@")
	as := append(l.env, "CDC_RELAY_POSTGRES_URL=postgres://"+role+"@"+host)
	script := invoke(t, as, "sql", "--create-table")
	script.want(t, exitOK, role, "")
	conn := l.db.Connect(t)
	for _, statement := range splitForPsql(script.stdout) {
		if _, err := conn.PgConn().Exec(t.Context(), statement).ReadAll(); err != nil {
			t.Fatalf("%v in\n%s", err, statement)
		}
	}
	again := invoke(t, as, "setup", "--create-table")
	again.want(t, exitOK, "slot", "")
	if strings.Contains(again.stdout, "missing") || strings.Contains(again.stdout, "created") {
		t.Errorf("setup found something missing:\n%s", again.stdout)
	}
	l.insert(t, 3)
	invoke(t, as, "explain").want(t, exitOK, "order-events", "")
	l.env = as
	url, stop := l.start(t, nil)
	l.await(t, "everything is published", func() bool {
		return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, "published 3,")
	})
	if code := stop(); code != exitOK {
		t.Errorf("run ended with %d", code)
	}
	released(t, l.db)
	invoke(t, l.env, "teardown", "--yes").want(t, exitRefused, "", "") // the role does not own the publication
	invoke(t, append(l.env, "CDC_RELAY_POSTGRES_URL="+l.db.URL), "teardown", "--yes").want(t, exitOK, "publication", "")
	l.db.Exec(t, "DROP OWNED BY "+role)
	l.db.Exec(t, "DROP ROLE "+role)
}

// splitForPsql sends statement by statement, as psql does: the slot is refused in
// the transaction that a whole script would be.
func splitForPsql(script string) []string {
	return strings.SplitAfter(regexp.MustCompile(`(?m)^(--|\\set).*\n`).ReplaceAllString(script, ""), ";\n")
}

// Every tool's file goes up, down and up again, in the transaction that the tool
// would open; and the slot is refused in it, as the files say.
func TestSQL_EveryFormatRunsOnAServer(t *testing.T) {
	db := harness.Postgres(t, "15")
	for _, format := range migrations.Formats() {
		for _, service := range []string{"self", "rds", "cloudsql"} {
			t.Run(format+" "+service, func(t *testing.T) {
				conn := db.Connect(t)
				env := []string{"CDC_RELAY_POSTGRES_URL=postgres://db/" + db.Name, "CDC_RELAY_OUTBOX_TABLE=public.outbox"}
				text := invoke(t, env, "sql", "--format", format, "--service", service, "--create-table",
					"--role", harness.Unique(t, "format"), "--set", "postgres.auth=aws_rds_iam").stdout
				up, down := halves(t, format, text)
				run := func(sql string) {
					t.Helper()
					if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
						t.Fatalf("%v in\n%s", err, sql)
					}
				}
				run("BEGIN; CREATE ROLE rds_replication; CREATE ROLE rds_iam")
				run(up)
				if got := count(t, conn); got != "1 1" {
					t.Errorf("%s tables and publications after up", got)
				}
				if down != "" {
					run(down)
					if got := count(t, conn); got != "0 0" {
						t.Errorf("%s tables and publications after down", got)
					}
					run(up)
				}
				_, slot, _ := strings.Cut(text, "SELECT pg_catalog.pg_create_logical")
				slot, _, _ = strings.Cut(slot, ";")
				_, err := conn.PgConn().Exec(t.Context(), "SELECT pg_catalog.pg_create_logical"+slot).ReadAll()
				if err == nil || !strings.Contains(err.Error(), "transaction that has performed writes") {
					t.Errorf("the slot inside the transaction: %v", err)
				}
				run("ROLLBACK")
			})
		}
	}
}

func count(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	var tables, publications int
	err := conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_class WHERE relname = 'outbox'), (SELECT count(*) FROM pg_publication)`).Scan(&tables, &publications)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(tables, publications)
}

// halves reads a file as its tool does: what goes up, and what goes down.
func halves(t *testing.T, format, text string) (up, down string) {
	t.Helper()
	switch format {
	case "plain":
		text, _, _ = strings.Cut(text, "\nCOMMIT;\n")
		_, text, _ = strings.Cut(text, "BEGIN;\n")
		return text, ""
	case "goose":
		up, down, _ = strings.Cut(text, "-- +goose Down\n")
		return up, down
	case "golang-migrate":
		up, down, _ = strings.Cut(text, "-- file: 000001_cdc_relay.down.sql\n")
		return up, down
	case "liquibase":
		sets := strings.Split(text, "--changeset ")[1:]
		for _, set := range sets {
			undo := ""
			for line := range strings.Lines(set) {
				if rollback, ok := strings.CutPrefix(line, "--rollback "); ok {
					undo += rollback
				}
			}
			_, sql, _ := strings.Cut(set, "\n")
			up, down = up+sql, undo+down
		}
		return up, down
	}
	return text, ""
}

// A relay's own table has nothing to maintain for a poller; a poller's has to be asked for.
func TestSQL_MakesThePollersTableOnlyWhenAsked(t *testing.T) {
	lean := invoke(t, nil, "sql", "--create-table")
	lean.want(t, exitOK, "headers         jsonb,\n    traceparent     text,", "")
	if strings.Contains(lean.stdout, "published_at") {
		t.Errorf("the relay's own table has a column of pollers:\n%s", lean.stdout)
	}
	polling := invoke(t, nil, "sql", "--preset", "polling")
	polling.want(t, exitOK, "(created_at) WHERE published_at IS NULL", "")
	invoke(t, nil, "sql", "--preset", "polling", "--column-list").want(t, exitOK, `"payload", "idempotency_key")`, "")
}

// The role of a command may be there already, or not. What is printed runs either way.
func TestSQL_MakesTheRoleOfACommandIfItIsMissing(t *testing.T) {
	db := harness.Postgres(t, "18")
	db.Exec(t, "CREATE TABLE outbox (id bigint PRIMARY KEY, published_at timestamptz, created_at timestamptz)")
	env := []string{"CDC_RELAY_POSTGRES_URL=" + db.URL, "CDC_RELAY_CONFIG=" + writeFile(t, `kafka: {brokers: ["localhost:1"]}
relay: {detect_moved_slot: true}
outbox: [{table: public.outbox, mark: {column: published_at}, retention: {then: delete, keep: 1h}}]
`)}
	for _, work := range []string{"backfill", "cutover", "retention", "mark", "audit", "replay"} {
		t.Run(work, func(t *testing.T) {
			role := harness.Unique(t, "role")
			quoted := `"` + role + `"`
			printed := invoke(t, env, "sql", "--for", work, "--role", role)
			printed.want(t, exitOK, "THEN CREATE ROLE "+quoted+" LOGIN", "")
			sql := strings.ReplaceAll(printed.stdout, `\set ON_ERROR_STOP on`, "")
			for range 2 {
				db.Exec(t, "DROP PUBLICATION IF EXISTS cdc_relay")
				db.Exec(t, sql)
			}
			db.Exec(t, "DROP OWNED BY "+quoted+"; DROP ROLE "+quoted)
		})
	}
	if down := invoke(t, env, "sql", "--for", "backfill", "--format", "goose").stdout; strings.Contains(down, "DROP ROLE") {
		t.Errorf("on the way down a role goes that may have been there before:\n%s", down)
	}
	for _, format := range migrations.Formats() {
		if text := invoke(t, nil, "sql", "--for", "backfill", "--format", format).stdout; strings.Contains(text, "\n;") || strings.Contains(text, "rollback ;") {
			t.Errorf("it has a statement of a semicolon alone:\n%s", text)
		}
	}
	invoke(t, nil, "sql", "--for", "backfill", "--format", "liquibase").want(t, exitOK, "\n--rollback not required\n", "")
	// Liquibase ends a statement at each semicolon otherwise.
	invoke(t, env, "sql", "--for", "backfill", "--format", "liquibase").want(t, exitOK, "-role splitStatements:false rollbackSplitStatements:false\n", "")
}
