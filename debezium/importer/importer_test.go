package importer_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/debezium/importer"
)

var update = flag.Bool("update", false, "rewrite testdata/*/imported.yaml")

// given is one folder of testdata: connector.*, and where there is one worker.*
// and catalog.txt, which has `schema.table: columns` a line, and `< schema.table`
// behind the name of a partition.
func given(t testing.TB, dir string) (input []byte, o importer.Options) {
	t.Helper()
	read := func(pattern string) (string, []byte) {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) > 1 {
			t.Fatalf("%s: %v and %v", pattern, found, err)
		}
		if len(found) == 0 {
			return "", nil
		}
		content, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Base(found[0]), content
	}
	if o.Name, input = read("connector.*"); input == nil {
		for _, name := range []string{"application.*", "debezium.*"} {
			if o.Name, input = read(name); input != nil {
				break
			}
		}
	}
	o.WorkerName, o.Worker = read("worker.*")
	if _, text := read("catalog.txt"); text != nil {
		o.Catalog = catalog(string(text))
	}
	return input, o
}

// folders are those of testdata that hold a connector: all but the fuzz corpus.
func folders(t testing.TB) []string {
	t.Helper()
	dirs, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return filepath.Base(dir) == "fuzz" })
}

func catalog(text string) []importer.Table {
	var tables []importer.Table
	for line := range strings.Lines(text) {
		name, columns, _ := strings.Cut(strings.TrimSpace(line), ": ")
		name, root, _ := strings.Cut(name, " < ")
		schema, table, _ := strings.Cut(name, ".")
		tables = append(tables, importer.Table{Schema: schema, Name: table, Root: root, Columns: strings.Fields(columns)})
		for i := range tables {
			tables[i].Partitioned = tables[i].Partitioned || tables[i].Schema+"."+tables[i].Name == root
		}
	}
	return tables
}

// load gives the placeholders values and checks the configuration.
func load(result *importer.Result) (*config.Config, error) {
	environ := []string{"DB_USER=relay", "PG_HOST=db", "PG_PORT=5432", "PREFIX=app", "DB_HOST=db", "SLOT_OF_OURS=outbox"}
	for name := range result.Source.Placeholders {
		environ = append(environ, name+"=value")
	}
	return config.Load(config.Options{Path: "imported.yaml", Environ: environ, ReadFile: func(name string) ([]byte, error) {
		switch {
		case name == "imported.yaml":
			return result.YAML, nil
		case strings.HasPrefix(name, "/run/secrets/"):
			return []byte("secret\n"), nil
		}
		return nil, fs.ErrNotExist
	}})
}

func TestConvert_Golden(t *testing.T) {
	dirs := folders(t)
	if len(dirs) < 10 {
		t.Fatalf("only %v", dirs)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			input, o := given(t, dir)
			result, err := importer.Convert(input, o)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join(dir, "imported.yaml")
			if *update {
				if err := os.WriteFile(golden, result.YAML, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(result.YAML, want) {
				t.Errorf("the import changed; look at it, and rewrite it with -update if it is right:\n%s", result.YAML)
			}
			todo := bytes.Contains(result.YAML, []byte("no reference is resolved")) // it must not start before somebody did that
			avro := bytes.Contains(result.YAML, []byte(".AvroConverter\n"))         // nor one whose records would be others
			if _, err := load(result); (err != nil) != (todo || avro) || todo && !strings.Contains(err.Error(), "write the value") || avro && !strings.Contains(err.Error(), "AvroConverter") {
				t.Errorf("what was imported: %v\n%s", err, result.YAML)
			}
		})
	}
}

// Each key of the input has exactly one remark, under its own name.
func TestConvert_EveryKeyHasItsRemark(t *testing.T) {
	dirs := folders(t)
	for _, dir := range dirs {
		input, o := given(t, dir)
		result, err := importer.Convert(input, o)
		if err != nil {
			t.Fatal(err)
		}
		type place struct {
			file string
			line int
			key  string
		}
		seen := map[place]int{}
		for _, r := range result.Remarks {
			if r.Text == "" || r.Fate == "" || r.Key == "" {
				t.Errorf("%s: an empty remark: %+v", dir, r)
			}
			if r.Line > 0 {
				seen[place{r.File, r.Line, r.Key}]++
			}
		}
		for p, n := range seen {
			if n > 1 {
				t.Errorf("%s: %v has %d remarks", dir, p, n)
			}
		}
		for _, key := range keys(string(input), result.Form) {
			if !slices.ContainsFunc(result.Remarks, func(r importer.Remark) bool {
				return r.Key == strings.Replace(key, "salt.abc", "salt.***", 1) && r.Line > 0 && r.File == o.Name
			}) {
				t.Errorf("%s: %s has no remark", dir, key)
			}
		}
	}
}

// keys finds the keys of an input in a way that owes nothing to the importer.
func keys(text string, form importer.Form) []string {
	var found []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch form {
		case importer.ConnectJSON:
			parts := strings.Split(line, `"`)
			if len(parts) > 3 && strings.HasPrefix(line, `"`) && strings.Contains(parts[1], ".") {
				found = append(found, parts[1])
			}
		case importer.ServerProperties:
			if key, _, ok := strings.Cut(line, "="); ok {
				found = append(found, key)
			}
		case importer.ServerEnvironment:
			if key, _, ok := strings.Cut(strings.TrimPrefix(line, "export "), "="); ok && strings.HasPrefix(key, "DEBEZIUM_") {
				found = append(found, key)
			}
		default:
		}
	}
	return found
}

// No password of an input reaches the output, whatever key it stands under.
func TestConvert_SecretsAreNeverPrinted(t *testing.T) {
	dirs := folders(t)
	for _, dir := range dirs {
		input, o := given(t, dir)
		for i := 1; i <= 6; i++ {
			input = bytes.ReplaceAll(input, fmt.Appendf(nil, "topsecret%d", i), fmt.Appendf(nil, "XyZZy%d", i))
			o.Worker = bytes.ReplaceAll(o.Worker, fmt.Appendf(nil, "topsecret%d", i), fmt.Appendf(nil, "XyZZy%d", i))
		}
		for _, secret := range []string{`"secret"`, `p\:a\=ss#word`, "hunter2", "password=postgres"} {
			value := strings.TrimPrefix(strings.Trim(secret, `"`), "password=")
			input = bytes.ReplaceAll(input, []byte(secret), []byte(strings.ReplaceAll(secret, value, "XyZZy")))
		}
		result, err := importer.Convert(input, o)
		if err != nil {
			t.Fatal(err)
		}
		out := string(result.YAML) + fmt.Sprint(result.Remarks) + fmt.Sprintf("%+v", result.Source)
		if i := strings.Index(out, "XyZZy"); i >= 0 {
			t.Errorf("%s: a secret is printed: …%s…", dir, out[max(0, i-60):i+10])
		}
	}
}

func TestConvert_WhatAnnouncesItself(t *testing.T) {
	for _, c := range []struct {
		dir, key string
		fate     importer.Fate
		text     string
	}{
		{"published", "topic.prefix", importer.Refused, "does not start without it"},
		{"published", "plugin.name", importer.Refused, "decoderbufs"},
		{"published", "transforms.outbox.route.by.field", importer.ToDo, "beside the column aggregate_id: the table probably has aggregate_type"},
		{"published-looked-at", "transforms.outbox.route.by.field", importer.Refused, "Column aggregate_type is offered"},
		{"published", "key.converter", importer.ToDo, "--worker"},
		{"bare-looked-at", "transforms.outbox.table.field.event.key", importer.Refused, "Column aggregate_id is offered"},
		{"bare-looked-at", "transforms.outbox.route.by.field", importer.Refused, "Column event_type is offered"},
		{"wrapped", "transforms.mask.type", importer.NotCarried, "the relay has no MaskField"},
		{"wrapped", "transforms.script.type", importer.NotCarried, "script"},
		{"wrapped", "producer.override.partitioner.class", importer.NotCarried, "another partitioner puts keys elsewhere"},
		{"wrapped", "column.mask.hash.SHA-256.with.salt.***", importer.NotCarried, "unmasked"},
		{"wrapped", "some.unknown.key", importer.NotCarried, "is no key of Debezium"},
		{"wrapped", "header.converter.schemas.enable", importer.NotNeeded, "Connect ignores it"},
		{"wrapped", "slot.drop.on.stop", importer.NotCarried, "set it to false in Debezium before you stop it"},
		{"old", "plugin.name", importer.NotCarried, "cannot be taken over"},
		{"server-properties", "debezium.transforms.outbox.table.field.event.timestamp", importer.Implied, "does not send the EventRouter's timestamp"},
		{"server-environment", "DEBEZIUM_FORMAT_VALUE", importer.NotCarried, "is not written by the relay"},
	} {
		input, o := given(t, "testdata/"+c.dir)
		result, err := importer.Convert(input, o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(result.Remarks, func(r importer.Remark) bool {
			return r.Key == c.key && r.Fate == c.fate && strings.Contains(r.Text, c.text)
		}) {
			t.Errorf("%s: no remark that %s is %s: …%s…; there are %v", c.dir, c.key, c.fate, c.text, result.Remarks)
		}
	}
}

const (
	head = `{"connector.class":"io.debezium.connector.postgresql.PostgresConnector",`
	tail = `"transforms":"outbox","transforms.outbox.type":"io.debezium.transforms.outbox.EventRouter"}`
)

func TestConvert_Errors(t *testing.T) {
	for _, c := range []struct{ name, input, at, message string }{
		{"nothing", " \n", "input:1", "is empty"},
		{"no form", "hello=world\n", "input:1", "this is none of"},
		{"binary", "a=\xff\n", "input:1:3", "is not UTF-8"},
		{"JSON", "{\n  \"a\": ,\n}", "input:2:7", "cannot be read as JSON"},
		{"JSON that ends", "{\n  \"a\": \"b\"", "input:2:11", "ends too early"},
		{"JSON list", `{"config": []}`, "input:1", "is not a JSON object"},
		{"JSON nested", head + "\n\"a\": {\"b\": 1}," + tail, "input:2", "flat"},
		{"JSON null", head + "\n\"a\": null," + tail, "input:2", "is null"},
		{"two JSON objects", head + `"table.include.list":"a.b",` + tail + "{}", "input:1", "something follows"},
		{"properties", "connector.class=x\nnonsense\n", "input:2:1", "is not `key=value`"},
		{"properties escape", "connector.class=\\u12\n", "input:1:1", "four hexadecimal digits"},
		{"environment", "DEBEZIUM_SOURCE_CONNECTOR_CLASS=x\nnonsense here\n", "input:2:1", "is not `NAME=value`"},
		{"YAML", "kind: KafkaConnector\nspec: [\n", "input:", "cannot be read as YAML"},
		{"YAML without spec", "kind: KafkaConnector\n", "input:1", "has no spec"},
		{"YAML nested", "kind: KafkaConnector\nspec:\n  config:\n    database: {hostname: x}\n", "input:4:5", "write flat keys"},
		{"another resource", "kind: KafkaTopic\nspec: {}\n", "input:1", "holds no KafkaConnector"},
		{"server YAML", "debezium:\n  source: x\n", "input:1", "application.properties"},
		{"no class", `{"a":"b"}`, "input:1", "connector.class is missing"},
		{"another connector", `{"connector.class":"io.debezium.connector.mysql.MySqlConnector"}`, "input:1:2", "is another connector"},
		{"Confluent Cloud", `{"connector.class":"PostgresCdcSourceV2"}`, "input:1:2", "Confluent Cloud"},
		{"no table", head + tail, "input:1", "captures every table"},
		{"a pattern", head + `"table.include.list":"public.out.*",` + tail, "input:1:", "--postgres-url"},
		{"no transforms", head + `"table.include.list":"public.outbox"}`, "input:1", "without the EventRouter"},
		{"no EventRouter", head + `"table.include.list":"public.outbox","transforms":"a","transforms.a.type":"io.debezium.transforms.ExtractNewRecordState"}`, "input:1:", "a (io.debezium.transforms.ExtractNewRecordState)"},
		{"MongoDB's router", head + `"table.include.list":"public.outbox","transforms":"a","transforms.a.type":"io.debezium.connector.mongodb.transforms.outbox.MongoEventRouter"}`, "input:1:", "for MongoDB"},
		{"a foreign predicate", head + `"table.include.list":"public.outbox","predicates":"p","predicates.p.type":"com.acme.P",` + tail, "input:1:", "of a class that the relay does not have"},
		{"too large", strings.Repeat("#", 1<<20+1), "input", "larger than 1 MiB"},
	} {
		_, err := importer.Convert([]byte(c.input), importer.Options{})
		e := (*importer.Error)(nil)
		if !errors.As(err, &e) {
			t.Errorf("%s: %v, want an *Error", c.name, err)
			continue
		}
		if !strings.HasPrefix(err.Error(), c.at) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want it at %s and with %q", c.name, err, c.at, c.message)
		}
	}
	input := head + `"table.include.list":"public.outbox",` + tail
	if _, err := importer.Convert([]byte(input), importer.Options{Catalog: catalog("public.other: id\n")}); err == nil || !strings.Contains(err.Error(), "no table of the database matches") {
		t.Errorf("a list that matches nothing: %v", err)
	}
	if _, err := importer.Convert([]byte(input), importer.Options{Worker: []byte("x"), WorkerName: "w"}); err == nil || !strings.HasPrefix(err.Error(), "w:1:1") {
		t.Errorf("a worker that cannot be read: %v", err)
	}
}

func TestResult_LostIsWhatStrictFailsOn(t *testing.T) {
	input, o := given(t, "testdata/wrapped")
	result, err := importer.Convert(input, o)
	if err != nil {
		t.Fatal(err)
	}
	lost := map[string]bool{}
	for _, r := range result.Lost() {
		lost[r.Key] = true
	}
	want := []string{
		"column.mask.hash.SHA-256.with.salt.***", "producer.override.partitioner.class", "slot.drop.on.stop", "some.unknown.key",
		"topic.creation.big.include", "topic.creation.groups", "transforms.mask.fields", "transforms.mask.type",
		"transforms.outbox.no.such.option", "transforms.script.condition", "transforms.script.type",
	}
	if got := slices.Sorted(maps.Keys(lost)); !slices.Equal(got, want) {
		t.Errorf("lost %v, want %v", got, want)
	}
}

func TestSource_IsWhatTakeoverNeeds(t *testing.T) {
	for dir, want := range map[string]importer.Source{
		"wrapped":           {Connector: "orders-outbox", TopicPrefix: "orders", Tables: []string{"shop.outbox_1", "shop.outbox_22", `shop."Events"`}, Slot: "orders_outbox", Publication: "orders_outbox", Plugin: "pgoutput", DropOnStop: true, Heartbeats: "__debezium-heartbeat.orders", Context: true, OffsetTopic: "connect-offsets", Brokers: "kafka1:9092,kafka2:9092", Publishing: "filtered"},
		"server-properties": {TopicPrefix: "app", Tables: []string{"public.outbox"}, Slot: "debezium", Publication: "dbz_publication", Plugin: "pgoutput", Context: true, OffsetFile: "/debezium/data/offsets.dat", Brokers: "kafka:9092", Publishing: "all_tables"},
		"strimzi":           {Connector: "outbox-connector", TopicPrefix: "shop", Tables: []string{"public.outbox"}, Slot: "debezium", Publication: "dbz_publication", Plugin: "pgoutput", Context: true, OffsetTopic: "connect-cluster-offsets", Brokers: "my-cluster-kafka-bootstrap:9093", Publishing: "all_tables"},
		"old":               {TopicPrefix: "dbserver1", Tables: []string{"public.outboxevent"}, Slot: "debezium", Publication: "dbz_publication", Plugin: "wal2json", Context: true, Heartbeats: "hb.dbserver1", Publishing: "all_tables"},
	} {
		input, o := given(t, "testdata/"+dir)
		result, err := importer.Convert(input, o)
		if err != nil {
			t.Fatal(err)
		}
		got := result.Source
		got.Placeholders = nil
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s:\n got %+v\nwant %+v", dir, got, want)
		}
	}
}

func FuzzConvert(f *testing.F) {
	for _, dir := range folders(f) {
		input, o := given(f, dir)
		f.Add(input, o.Worker)
	}
	f.Add([]byte("kind: KafkaConnector\nspec: {config: &a {b: *a}}\n"), []byte("a=b"))
	f.Fuzz(func(t *testing.T, input, worker []byte) {
		if bytes.Contains(input, []byte("*")) && bytes.Contains(input, []byte("kind")) && len(input) > 4096 {
			return
		}
		if len(worker) == 0 {
			worker = nil
		}
		result, err := importer.Convert(input, importer.Options{Worker: worker})
		if err != nil {
			if e := (*importer.Error)(nil); !errors.As(err, &e) {
				t.Fatalf("%v is no *Error", err)
			}
			return
		}
		if _, err := load(result); err == nil {
			return
		} else if errs := (*config.Errors)(nil); errors.As(err, &errs) {
			for _, e := range errs.List {
				if strings.Contains(e.Message, "cannot be read as YAML") {
					t.Fatalf("the YAML is broken: %v\n%s", err, result.YAML)
				}
			}
		}
	})
}
