package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

var update = flag.Bool("update", false, "write goldens")

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (write it with -update):\n got:\n%s\nwant:\n%s", file, got, want)
	}
}

// golden is an absolute path, because invoke changes the directory.
func golden(t *testing.T, name string) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// shop is a database with outbox tables, and the environment to explain them.
func shop(t *testing.T, sql string, env ...string) (*harness.Database, []string) {
	t.Helper()
	db := harness.Postgres(t, "15")
	db.Exec(t, sql)
	return db, append([]string{"CDC_RELAY_POSTGRES_URL=" + db.URL, "CDC_RELAY_KAFKA_BROKERS=127.0.0.1:1", "CDC_RELAY_OUTBOX_TABLE=public.outbox"}, env...)
}

const ourTable = `CREATE TABLE outbox (
	id uuid PRIMARY KEY, aggregate_type varchar(100) NOT NULL, aggregate_id uuid NOT NULL, event_type varchar(100) NOT NULL, payload jsonb NOT NULL,
	idempotency_key varchar(255) UNIQUE, created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz, retry_count int DEFAULT 0, last_error text);
	CREATE PUBLICATION cdc_relay FOR TABLE outbox WITH (publish = 'insert')`

const ourRow = `INSERT INTO outbox VALUES ('00000000-0000-0000-0000-000000000001', 'order', '00000000-0000-0000-0000-00000000000a', 'OrderPlaced', '{"total": 12.50, "note": "1\n2"}', 'k-1')`

func TestExplain_ShowsEveryDecisionAndTheRecord(t *testing.T) {
	file := golden(t, "explain.golden")
	db, env := shop(t, ourTable)
	db.Exec(t, ourRow)
	got := invoke(t, env, "explain")
	got.want(t, exitOK, "", "")
	compareGolden(t, file, got.stdout)
	if short := invoke(t, env, "explain", "--no-record"); strings.Contains(short.stdout, "12.5") || !strings.HasPrefix(got.stdout, strings.TrimSuffix(short.stdout, "\n")) {
		t.Errorf("--no-record gives\n%s", short.stdout)
	}
}

func TestExplain_NamesTheOriginOfWhatIsConfigured(t *testing.T) {
	text, asJSON := golden(t, "explain_configured.golden"), golden(t, "explain_configured.json")
	db, env := shop(t, `CREATE TABLE outbox (id bigint PRIMARY KEY, kind text, subject text, data bytea, meta jsonb, shard int, unused text);
		CREATE PUBLICATION cdc_relay FOR TABLE outbox WITH (publish = 'insert')`)
	db.Exec(t, `INSERT INTO outbox VALUES (7, 'Shipped', NULL, '\x00ff', '{"tenant": {"id": "acme"}, "at": "2026-02-03T04:05:06Z"}', 3, 'never shown')`)
	set := []string{}
	for _, s := range []string{
		"preset=generic", "topic=shop.${kind|lower}", "columns.key=subject", "columns.payload=data", "columns.timestamp=meta#/at",
		"headers.tenant=meta#/tenant/id", "partition=shard",
	} {
		set = append(set, "--set", "outbox[0]."+s)
	}
	got := invoke(t, env, append([]string{"explain"}, set...)...)
	got.want(t, exitOK, "", "")
	compareGolden(t, text, got.stdout)
	got = invoke(t, env, append([]string{"explain", "--json"}, set...)...)
	got.want(t, exitOK, "", "")
	if !json.Valid([]byte(got.stdout)) {
		t.Error("--json prints no JSON")
	}
	compareGolden(t, asJSON, got.stdout)
	if strings.Contains(got.stdout, "never shown") {
		t.Error("shows a column that no record has")
	}
}

func TestExplain_WithoutSelectPrintsTheGrantAndTheRest(t *testing.T) {
	db, env := shop(t, ourTable)
	db.Exec(t, ourRow)
	role := harness.Unique(t, "explainer")
	db.Exec(t, `CREATE ROLE `+role+` LOGIN`)
	_, host, _ := strings.Cut(db.URL, "@")
	env[0] = "CDC_RELAY_POSTGRES_URL=postgres://" + role + "@" + host

	got := invoke(t, env, "explain")
	got.want(t, exitRefused, `GRANT SELECT ON "public"."outbox" TO "`+role+`"`, "")
	got.want(t, exitRefused, "${aggregate_type}-events", "")
	var report struct {
		Tables []struct{ Problem, Grant string }
	}
	asJSON := invoke(t, env, "explain", "--json")
	if err := json.Unmarshal([]byte(asJSON.stdout), &report); err != nil || len(report.Tables) != 1 || report.Tables[0].Grant == "" {
		t.Fatalf("%v in %s", err, asJSON.stdout)
	}
	invoke(t, env, "explain", "--no-record").want(t, exitOK, "payload", "")
	db.Exec(t, report.Tables[0].Grant)
	invoke(t, env, "explain").want(t, exitOK, "order-events", "")
	db.Exec(t, `DROP OWNED BY `+role)
	db.Exec(t, `DROP ROLE `+role)
}

func TestExplain_TakesASample(t *testing.T) {
	db, env := shop(t, `CREATE TABLE outbox (id uuid, aggregate_type text, aggregate_id text, payload jsonb, headers text[], active bool, raw bytea);
		CREATE PUBLICATION cdc_relay FOR TABLE outbox WITH (publish = 'insert')`)
	invoke(t, env, "explain").want(t, exitOK, "has no rows; show one with --sample", "")
	sample := func(content string, args ...string) result {
		t.Helper()
		file := filepath.Join(t.TempDir(), "row.json")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return invoke(t, env, append([]string{"explain", "--sample", file}, args...)...)
	}
	const id = "00000000-0000-0000-0000-00000000000a"
	good := sample(`{"id": "`+strings.ToUpper(id)+`", "aggregate_type": "order", "aggregate_id": 42, "payload": {"p":"C:\\d","a":1}, "headers": ["x", "say \"hi\""], "active": true, "raw": "\\x00"}`,
		"--set", "outbox[0].headers.active=active", "--set", "outbox[0].headers.raw=raw")
	good.want(t, exitOK, "order-events", "")
	for _, want := range []string{`{"a": 1, "p": "C:\\d"}`, `x: say "hi"`, "active: t", "raw: ␀", "42", id} {
		if !strings.Contains(good.stdout, want) {
			t.Errorf("%s is missing in\n%s", want, good.stdout)
		}
	}
	text := sample(`{"id": "`+id+`", "aggregate_type": "order", "payload": "{\"a\": 1}"}`, "--set", "outbox[0].value=json_string")
	text.want(t, exitOK, `"{\"a\": 1}"`, "")
	sample(`{"id": "`+id+`", "aggregate_type": "order", "payload": {}}`).want(t, exitOK, "leaves out aggregate_id", "")
	// A row that would block the relay is said to, and nothing is shown as sent.
	sample(`{"id": "`+id+`", "payload": {}}`).want(t, exitRefused, "would be rejected", "")
	for content, want := range map[string]string{
		``:                          "line 1, column 1",
		"{\"id\": 1,\n  \"payl}":    "line 2, column ",
		`[1]`:                       "has to be one JSON object",
		`null`:                      "has to be one JSON object",
		`{"id": 1, "paylod": {}}`:   `no column "paylod"; it has id, aggregate_type`,
		`{"id": "x"}`:               `column "id": invalid input syntax for type uuid`,
		`{"id": {}}`:                "JSON object is not a value of type uuid",
		`{"active": "perhaps"}`:     "neither true nor false",
		`{"raw": "\\xgg"}`:          "not hexadecimal",
		`{"headers": [1, {"a":2}]}`: "strings and nulls only",
	} {
		sample(content).want(t, exitUsage, "", want)
	}
	invoke(t, env, "explain", "--sample", "/nowhere.json").want(t, exitUsage, "", "/nowhere.json")
	db.Exec(t, `CREATE TABLE second (LIKE outbox)`)
	two := append(env, "CDC_RELAY_OUTBOX_TABLE=")
	file := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(file, []byte("outbox:\n  - table: outbox\n  - table: second\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env = two
	sample(`{}`, "-c", file).want(t, exitUsage, "", "name the row's table with --table")
	sample(`{"id": "`+id+`", "aggregate_type": "order", "payload": {}}`, "-c", file, "--table", "second").want(t, exitOK, "table public.second", "")
	sample(`{}`, "-c", file, "--table", "third").want(t, exitUsage, "", "third is not configured; there are public.outbox, public.second")
}

func TestExplain_TakesTheBodyOfALogicalMessage(t *testing.T) {
	env := []string{"CDC_RELAY_POSTGRES_URL=postgres://127.0.0.1:1/shop", "CDC_RELAY_KAFKA_BROKERS=127.0.0.1:1", "CDC_RELAY_OUTBOX_MESSAGE_PREFIX=shop"}
	invoke(t, env, "explain").want(t, exitOK, "logical messages are kept nowhere", "")
	file := filepath.Join(t.TempDir(), "body.json")
	body := `{"id": "e-1", "aggregateId": "42", "aggregateType": "order", "type": "Placed", "payload": {"n": 1}}` + "\n"
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	got := invoke(t, env, "explain", "--table", "shop", "--sample", file)
	got.want(t, exitOK, "logical messages with prefix shop", "")
	got.want(t, exitOK, "order-events", "")
	got.want(t, exitOK, `{"n": 1}`, "")
	got.want(t, exitOK, "outbox (default)", "")
	if err := os.WriteFile(file, []byte(`{"id": `), 0o600); err != nil {
		t.Fatal(err)
	}
	invoke(t, env, "explain", "--sample", file).want(t, exitUsage, "", "line 1, column 7")
}

func TestExplain_RefusesWithTheWayOut(t *testing.T) {
	_, env := shop(t, `CREATE TABLE outbox (id uuid, a jsonb, b jsonb)`)
	invoke(t, env, "explain").want(t, exitUsage, "", "outbox:\n  - table: public.outbox\n    columns:")
	invoke(t, env, "explain", "--set", "outbox.table=nobody").want(t, exitRefused, "", "setup --create-table")
	invoke(t, env, "explain", "--set", "outbox[1].table=nobody", "--set", "outbox[0].topic=x", "--set", "outbox[0].columns.payload=a").
		want(t, exitRefused, "table public.outbox", "public.nobody: the table does not exist")
	invoke(t, closedPorts, "explain").want(t, exitRefused, "", "127.0.0.1:1")
	if got := invoke(t, closedPorts, "explain", "--set", "outbox[1].table=another"); strings.Count(got.stderr, "127.0.0.1:1") != strings.Count(invoke(t, closedPorts, "explain").stderr, "127.0.0.1:1") {
		t.Errorf("the message about the server stands there once for each table:\n%s", got.stderr)
	}
}
