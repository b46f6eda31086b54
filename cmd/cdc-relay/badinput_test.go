package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// badInput is a table or a configuration that gives no record, and the one
// message about it.
var badInput = []struct {
	name     string
	table    string // columns
	settings []string
	want     string // what is wrong and where
	way      string // what to do
	invalid  bool   // the configuration alone shows it, so check ends with 2 as well
}{
	{
		name: "a table that nobody can route", table: `id uuid, a jsonb, b jsonb`,
		want: "outbox[0].columns: auto does not recognise table public.outbox: it sees no column for the payload; it has id, a, b",
		way:  "outbox:\n  - table: public.outbox\n    columns:\n      id: id\n      payload: COLUMN # one of id, a, b\n    topic: events",
	},
	{
		name: "two columns for one role", table: `id uuid, aggregatetype text, aggregate_type text, aggregateid text, type text, payload jsonb`,
		want: "table public.outbox is ambiguous: it has the columns of preset debezium, and any of aggregatetype, aggregate_type could be the route",
		way:  "preset: debezium\n    columns:\n      route: aggregatetype # or aggregate_type",
	},
	{
		name: "an array for a key", table: `id uuid, aggregate_type text, aggregate_id int[], payload jsonb`,
		want: `outbox[0].columns.key: column "aggregate_id" of table public.outbox is of type int4[], which cannot be the key`, way: "map another column",
	},
	{
		name: "an array of an enum for a key", table: `id uuid, aggregate_type text, aggregate_id mood[], payload jsonb`,
		want: `column "aggregate_id" of table public.outbox is of type mood[], which cannot be the key`, way: "map another column",
	},
	{
		name: "JSON for a key", table: `id uuid, aggregate_type text, aggregate_id jsonb, payload jsonb`,
		want: `column "aggregate_id" of table public.outbox is of type jsonb, which cannot be the key`, way: "point into it, as in aggregate_id#/customer/id",
	},
	{
		name: "XML for a key", table: `id uuid, aggregate_type text, aggregate_id xml, payload jsonb`,
		want: `is of type xml, which cannot be the key`, way: "map another column",
	},
	{
		name: "a composite type for a key", table: `id uuid, aggregate_type text, aggregate_id place, payload jsonb`,
		want: `outbox[0].columns.key: column "aggregate_id" of table public.outbox is of type place, which cannot be the key`, way: "write the part that orders rows to a column of its own",
	},
	{
		name: "a composite type for a payload", table: `id uuid, aggregate_type text, aggregate_id text, payload place`,
		want: `outbox[0].columns.payload: column "payload" of table public.outbox is of type place, a composite type`, way: "write the payload as jsonb, with to_jsonb(…), or as text",
	},
	{
		name: "a domain over an array for a key", table: `id uuid, aggregate_type text, aggregate_id numbers, payload jsonb`,
		want: `is of type int4[], which cannot be the key`, way: "map another column",
	},
	{
		name: "a domain over a composite type for a key", table: `id uuid, aggregate_type text, aggregate_id somewhere, payload jsonb`,
		want: `is of type place, which cannot be the key`, way: "map another column",
	},
	{
		name: "a large object for a payload", table: `id uuid, aggregate_type text, aggregate_id text, payload oid`,
		want: "the number of a large object, whose bytes never reach the log", way: "write the payload to a bytea, jsonb or text column",
	},
	{
		name: "an array for a topic", table: `id uuid, aggregate_type text[], aggregate_id text, payload jsonb`,
		want: `is of type text[], which cannot be a topic name`, way: "use another column",
	},
	{
		name: "a preset that does not fit", table: `id uuid, kind text, payload jsonb`, settings: []string{"preset=debezium"},
		want: "preset debezium needs a column for the key (aggregateid), and table public.outbox has none; it has id, kind, payload", way: "set columns.key",
	},
	{
		name: "a preset that there is not", table: `id uuid, payload jsonb`, settings: []string{"preset=debezum"}, invalid: true,
		want: `outbox[0].preset: there is no preset "debezum"`, way: "did you mean debezium?",
	},
	{
		name: "a template filter that there is not", table: `id uuid, kind text, payload jsonb`, settings: []string{"topic=${kind|shout}"}, invalid: true,
		want: "outbox[0].topic: topic template", way: "there are lower, ",
	},
	{
		name: "a template that names no column", table: `id uuid, kind text, payload jsonb`, settings: []string{"topic=shop.${kid}"},
		want: `outbox[0].topic: table public.outbox has no column "kid"`, way: "it has id, kind, payload",
	},
}

// One mistake is one message, with the way out, from explain and from check.
func TestBadInput_IsOneMessageWithTheWayOut(t *testing.T) {
	l, env := clinic(t, ourOutbox)
	l.db.Exec(t, `DROP TABLE outbox CASCADE; CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE TYPE place AS (x int, y int);
		CREATE DOMAIN numbers AS int[]; CREATE DOMAIN somewhere AS place`)
	for _, c := range badInput {
		t.Run(c.name, func(t *testing.T) {
			l.db.Exec(t, `CREATE TABLE outbox (`+c.table+`); ALTER PUBLICATION cdc_relay ADD TABLE outbox`)
			defer l.db.Exec(t, `DROP TABLE outbox`)
			var set []string
			for _, s := range c.settings {
				set = append(set, "--set", "outbox[0]."+s)
			}
			got := invoke(t, env, append([]string{"explain"}, set...)...)
			got.want(t, exitUsage, "", c.want)
			got.want(t, exitUsage, "", c.way)
			if n := strings.Count(got.stderr, ": outbox[0]."); n != 1 {
				t.Errorf("%d messages:\n%s", n, got.stderr)
			}
			if c.invalid {
				invoke(t, env, append([]string{"check"}, set...)...).want(t, exitUsage, "", c.want)
				return
			}
			report, failed := checkUp(t, env, set...), 0
			for _, f := range report.Findings {
				if f.Check == "table.mapping" && f.Level == advice.Fail {
					failed++
					if f.Advice == "" {
						t.Errorf("no advice: %+v", f)
					}
				}
			}
			if failed != 1 {
				t.Errorf("%d findings: %+v", failed, report.Findings)
			}
		})
	}
}

// A domain is what it is based on.
func TestBadInput_DomainsOfOrdinaryTypesWork(t *testing.T) {
	db, env := shop(t, `CREATE DOMAIN ref AS text CHECK (value <> ''); CREATE DOMAIN body AS jsonb; CREATE DOMAIN tags AS text[];
		CREATE TABLE outbox (id uuid, aggregate_type ref, aggregate_id ref, event_type text, payload body, headers tags);
		CREATE PUBLICATION cdc_relay FOR TABLE outbox WITH (publish = 'insert')`)
	db.Exec(t, `INSERT INTO outbox VALUES ('00000000-0000-0000-0000-000000000001', 'order', 'o-1', 'Placed', '{"n": 1}', ARRAY['tenant', 't1'])`)
	got := invoke(t, env, "explain")
	for _, want := range []string{"order-events", "o-1", `{"n": 1}`, "tenant: t1"} {
		got.want(t, exitOK, want, "")
	}
}

func TestBadInput_ASampleThatIsNoJSON(t *testing.T) {
	db := harness.Postgres(t, "15")
	db.Exec(t, ourTable)
	env := []string{"CDC_RELAY_POSTGRES_URL=" + db.URL, "CDC_RELAY_KAFKA_BROKERS=127.0.0.1:1", "CDC_RELAY_OUTBOX_TABLE=public.outbox"}
	file := filepath.Join(t.TempDir(), "row.txt")
	if err := os.WriteFile(file, []byte("id,payload\n1,{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := invoke(t, env, "explain", "--sample", file)
	got.want(t, exitUsage, "", "--sample "+file+": line 1, column 1: ")
	got.want(t, exitUsage, "", `it has to be one JSON object of column and value, such as {"id": "…", "payload": {}}`)
	if n := strings.Count(strings.TrimSpace(got.stderr), "\n"); n != 0 {
		t.Errorf("%d lines:\n%s", n+1, got.stderr)
	}
}
