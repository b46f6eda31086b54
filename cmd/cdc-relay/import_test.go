package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

const publishedConnector = `{"connector.class":"io.debezium.connector.postgresql.PostgresConnector","database.hostname":"postgres","database.port":"5432",
"database.user":"debezium","database.password":"` + secretPassword + `","database.dbname":"app","table.include.list":"public.outbox","transforms":"outbox",
"transforms.outbox.type":"io.debezium.transforms.outbox.EventRouter","transforms.outbox.table.field.event.id":"id",
"transforms.outbox.table.field.event.key":"aggregate_id","transforms.outbox.table.field.event.payload":"payload",
"transforms.outbox.route.topic.replacement":"${routedByValue}-events"}`

func fileOf(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestImport_PrintsAConfigurationThatIsValid(t *testing.T) {
	connector := fileOf(t, "connector.json", publishedConnector)
	worker := fileOf(t, "worker.properties", "bootstrap.servers=b1:9092\nkey.converter=org.apache.kafka.connect.storage.StringConverter\nvalue.converter=org.apache.kafka.connect.storage.StringConverter\n")
	r := invoke(t, nil, "import", connector, "--worker", worker)
	r.want(t, 0, "transforms.outbox.route.topic.replacement: \"${routedByValue}-events\"", "topic.prefix: refused")
	imported := fileOf(t, "cdc-relay.yaml", r.stdout)
	invoke(t, nil, "config", "validate", "--config", imported).want(t, 0, "ok: ", "")
}

func TestImport_ExitCodes(t *testing.T) {
	connector := fileOf(t, "connector.json", publishedConnector)
	mistaken := fileOf(t, "broken.json", "{\n  \"a\": \n")
	other := fileOf(t, "mysql.json", `{"connector.class":"io.debezium.connector.mysql.MySqlConnector"}`)
	for _, c := range []struct {
		code   int
		stderr string
		args   []string
	}{
		{2, "FILE is missing", []string{"import"}},
		{2, "no such file", []string{"import", "/no/such/file"}},
		{2, "broken.json:3:1: cannot be read as JSON", []string{"import", mistaken}},
		{2, "is another connector", []string{"import", other}},
		{2, "--strict", []string{"import", connector, "--strict"}},
		{2, "--worker", []string{"import", connector, "--worker", "/no/such/file"}},
		{3, "", []string{"import", connector, "--postgres-url", "postgres://relay@127.0.0.1:1/shop?sslmode=disable&connect_timeout=2"}},
	} {
		invoke(t, nil, c.args...).want(t, c.code, "", c.stderr)
	}
}

// What our own loader refuses is not called carried, and --strict fails on it.
func TestImport_StrictFailsOnWhatTheLoaderRefuses(t *testing.T) {
	whole := strings.Replace(publishedConnector, `{"connector`, `{"topic.prefix":"app","plugin.name":"pgoutput","connector`, 1)
	worker := fileOf(t, "worker.properties", "bootstrap.servers=b1:9092\nkey.converter=org.apache.kafka.connect.storage.StringConverter\nvalue.converter=org.apache.kafka.connect.storage.StringConverter\n")
	invoke(t, nil, "import", fileOf(t, "whole.json", whole), "--worker", worker, "--strict").want(t, 0, "", "")
	for name, c := range map[string]struct{ key, more string }{
		"a converter":         {"value.converter", `"value.converter":"io.confluent.connect.avro.AvroConverter"`},
		"a Java pattern":      {"transforms.outbox.route.topic.regex", `"transforms.outbox.route.topic.regex":"(?!x)(.*)"`},
		"a placement":         {"transforms.outbox.table.fields.additional.placement", `"transforms.outbox.table.fields.additional.placement":"type:headr"`},
		"an empty placement":  {"transforms.outbox.table.fields.additional.placement", `"transforms.outbox.table.fields.additional.placement":""`},
		"no predicates":       {"transforms.outbox.predicate", `"transforms.outbox.predicate":"p"`},
		"decimals":            {"decimal.handling.mode", `"decimal.handling.mode":"bogus"`},
		"a group's name":      {"transforms.outbox.route.topic.regex", `"transforms.outbox.route.topic.regex":"(?<a_b>.*)"`},
		"skipped operations":  {"skipped.operations", `"skipped.operations":"c"`},
		"RegexRouter's group": {"transforms.r.replacement", `"transforms":"outbox,r","transforms.r.type":"org.apache.kafka.connect.transforms.RegexRouter","transforms.r.regex":"(.*)","transforms.r.replacement":"x-$2"`},
	} {
		input := fileOf(t, "c.json", strings.TrimSuffix(whole, "}")+","+c.more+"}")
		r := invoke(t, nil, "import", input, "--worker", worker, "--strict")
		if r.code != 2 || !strings.Contains(r.stderr, c.key+": not carried") && !strings.Contains(r.stderr, c.key+": refused") {
			t.Errorf("%s: code %d, %s", name, r.code, r.stderr)
		}
	}
}

func TestImport_LooksAtTheTable(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type varchar(100) NOT NULL, aggregate_id uuid NOT NULL, event_type varchar(100) NOT NULL, payload jsonb NOT NULL)`)
	db.Exec(t, `CREATE TABLE parted (id int) PARTITION BY RANGE (id); CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (1) TO (2)`)
	connector := fileOf(t, "connector.json", publishedConnector)
	r := invoke(t, nil, "import", connector, "--postgres-url", db.URL)
	r.want(t, 0, "transforms.outbox.route.by.field: aggregate_type", "Column aggregate_type is offered")

	pattern := fileOf(t, "pattern.json", strings.Replace(publishedConnector, "public.outbox", "public[.]part.*", 1))
	r = invoke(t, nil, "import", pattern, "--postgres-url", db.URL)
	r.want(t, 0, "- table: public.parted_1\n", "")
	if strings.Contains(r.stdout, "- table: public.parted\n") {
		t.Error("the partitioned table is there beside its partition, whose rows carry the partition's name")
	}
}

func TestImport_TakesNoConfigurationOfOurs(t *testing.T) {
	connector := fileOf(t, "connector.json", publishedConnector)
	invoke(t, nil, "import", connector, "--set", "postgres.slot=x").want(t, 2, "", "--config and --set have no effect")
	invoke(t, nil, "import", "-", "--worker", "-").want(t, 2, "", "cannot both be standard input")
}

// Files that lie where the relay runs are not looked for where import runs.
func TestImport_DoesNotLookForCertificates(t *testing.T) {
	connector := fileOf(t, "connector.json", strings.Replace(publishedConnector, `{"connector`, `{"topic.prefix":"app","plugin.name":"pgoutput","database.sslmode":"verify-full","database.sslrootcert":"/no/such/ca.pem","connector`, 1))
	worker := fileOf(t, "worker.properties", "bootstrap.servers=b1:9092\nkey.converter=String\nvalue.converter=String\n")
	invoke(t, nil, "import", connector, "--worker", worker, "--strict").want(t, 0, "sslrootcert=/no/such/ca.pem", "")
}

func TestExpand_KnowsWhatTheEnvironmentHas(t *testing.T) {
	a := &app{process: process{env: []string{"SLOT=ours"}}}
	for value, want := range map[string]string{"plain": "plain", "${SLOT}": "ours", "${SLOT:-other}": "ours", "a_${NONE:-b}": "a_b", "${NONE}": "?", "${file:/slot}": "?"} {
		got, known := a.expand(value)
		if !known {
			got = "?"
		}
		if got != want {
			t.Errorf("%s is %q, want %q", value, got, want)
		}
	}
}

// What is wrong with a file is said with its place; the usage has no more to add.
func TestImport_ErrorsOfFilesDoNotPointToTheUsage(t *testing.T) {
	for content, want := range map[string]string{"[1]": ":1:1: is a JSON array", "{'a':1}": ":1:1: cannot be read as JSON", "connector.class=io.x\n": `:1:1: connector.class: "io.x" is another connector`} {
		file := fileOf(t, "connector", content)
		got := invoke(t, nil, "import", file)
		got.want(t, exitUsage, "", file+want)
		if strings.Contains(got.stderr, "--help") {
			t.Error(got.stderr)
		}
	}
}
