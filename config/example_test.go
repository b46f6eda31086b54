package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write goldens")

const exampleFile = "../cdc-relay.example.yaml"

// needed are the values that have no default, as the example shows them.
var needed = map[string]string{
	"postgres.url":  "postgres://relay@localhost:5432/shop",
	"outbox.table":  "public.outbox",
	"kafka.brokers": "[localhost:9092]",
}

// TestExample_HoldsEveryKeyWithItsDefault keeps the file that users copy equal
// to the tree of keys: key, default and description.
func TestExample_HoldsEveryKeyWithItsDefault(t *testing.T) {
	compareGolden(t, exampleFile, renderExample())
}

func TestExample_Loads(t *testing.T) {
	cfg, err := Load(Options{Path: exampleFile, Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	bare, err := Load(Options{Environ: []string{}, ReadFile: noFiles, Set: []string{
		"postgres.url=" + needed["postgres.url"], "kafka.brokers=localhost:9092", "outbox.table=public.outbox",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := normal(cfg), normal(bare); !reflect.DeepEqual(got, want) {
		t.Errorf("the example differs from the defaults:\n got %+v\nwant %+v", got, want)
	}
	if len(cfg.Warnings) > 0 {
		t.Errorf("warnings: %q", cfg.Warnings)
	}
}

// TestKeys_AllHaveADescription also catches a field without a name.
func TestKeys_AllHaveADescription(t *testing.T) {
	eachKey(reflect.TypeFor[settings](), "", func(path string, k key) {
		if k.name == "" || k.desc == "" || !strings.HasSuffix(k.desc, ".") {
			t.Errorf("%s (field %v): name %q, description %q", path, k.typ, k.name, k.desc)
		}
	})
}

func renderExample() string {
	var b strings.Builder
	b.WriteString(`# yaml-language-server: $schema=cdc-relay.schema.json
# Every key of cdc-relay with its default. Only postgres.url, outbox[].table and
# kafka.brokers are needed; leave out what you do not change.
# For completion in an editor: cdc-relay config schema > cdc-relay.schema.json
# Values may hold ${NAME}, ${NAME:-default} and ${file:/path}, except topic and
# headers, whose ${column} belong to the row; $${ is a literal ${. Every key is
# also a variable: CDC_RELAY_POSTGRES_URL. Precedence: --set, variable, file, default.

`)
	exampleSection(&b, reflect.TypeFor[settings](), "", "", "")
	return strings.TrimSuffix(b.String(), "\n")
}

func exampleSection(b *strings.Builder, t reflect.Type, path, indent, first string) {
	keys := keysOf(t)
	for i, k := range keys {
		lead := indent
		if i == 0 {
			lead = indent + first
		} else if first != "" {
			lead = indent + "  "
		}
		comment := strings.Repeat(" ", len(strings.TrimRight(lead, "- ")))
		if len(lead) > len(comment) {
			comment = strings.Repeat(" ", len(lead))
		}
		path := join(path, k.name)
		value, isNeeded := needed[path]
		switch {
		case k.section():
			fmt.Fprintf(b, "%s# %s\n%s%s:\n", comment, k.desc, lead, k.name)
			exampleSection(b, k.typ, path, comment+"  ", "")
		case k.typ == outboxType:
			fmt.Fprintf(b, "%s# %s\n%s%s:\n", comment, k.desc, lead, k.name)
			exampleSection(b, k.typ.Elem(), path, comment+"  ", "- ")
		default:
			if !isNeeded {
				value = exampleDefault(k)
			}
			choice := ""
			if len(k.enum) > 1 {
				choice = " (" + strings.Join(k.enum, " | ") + ")"
			}
			fmt.Fprintf(b, "%s# %s%s\n%s%s: %s\n", comment, k.desc, choice, lead, k.name, value)
		}
		if path == k.name {
			b.WriteString("\n")
		}
	}
}

func exampleDefault(k key) string {
	switch {
	case k.typ == pairsType || k.typ == templatePairsType:
		return "{}"
	case k.typ == textsType:
		return "[]"
	case k.def == "":
		return `""`
	case k.typ.Kind() == reflect.Int, k.typ.Kind() == reflect.Float64:
		return k.def
	case k.typ.Kind() == reflect.Bool:
		return k.def
	}
	return quote(k.def)
}

// normal drops the difference between nil and empty.
func normal(c *Config) settings {
	s := c.settings
	s.Outbox = append([]outboxSettings(nil), s.Outbox...)
	for i := range s.Outbox {
		o := &s.Outbox[i]
		o.Debezium = append(templatePairs{}, o.Debezium...)
		o.Headers, o.ValueFields = append(templatePairs{}, o.Headers...), append(pairs{}, o.ValueFields...)
	}
	s.Postgres.PasswordCommand = append([]string{}, s.Postgres.PasswordCommand...)
	s.Kafka.Registry.URL = append([]string{}, s.Kafka.Registry.URL...)
	s.Kafka.Brokers = append([]string{}, s.Kafka.Brokers...)
	s.Kafka.OAuth.Extensions = append(pairs{}, s.Kafka.OAuth.Extensions...)
	s.Kafka.CreateTopics.Config = append(pairs{}, s.Kafka.CreateTopics.Config...)
	return s
}

func noFiles(name string) ([]byte, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
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
