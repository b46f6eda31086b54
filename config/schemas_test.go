package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/format"
)

const avsc = `{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}`

// withSchema is a configuration whose table has these keys.
func withSchema(table string) Options {
	text := strings.Replace(minimal, "  - table: public.outbox\n", "  - {table: public.outbox, value: avro, "+table+"}\n", 1)
	return Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": text + "  registry: {url: [http://localhost:8081]}\n", "order.avsc": avsc, "bytes.avsc": `"bytes"`}.read}
}

func TestSchema_IsRegisteredUnderALiteralSubject(t *testing.T) {
	for table, want := range map[string]string{
		"schema: {file: order.avsc, register: true, subject: orders-value}":                "orders-value",
		"topic: orders, schema: {file: order.avsc, register: true}":                        "orders-value",
		"topic: orders, schema: {file: order.avsc, register: true, subject: 'x-${topic}'}": "x-orders",
		"schema: {file: order.avsc, register: true, subject: 'a$${b}'}":                    "a${b}",
	} {
		schema := load(t, withSchema(table)).Relay().Router.Mappings[0].Schema
		if r := schema.Register; r == nil || r.Subject != want || r.Text != avsc || r.File != "order.avsc" {
			t.Errorf("%s: %+v", table, r)
		}
		if schema.Given != nil {
			t.Errorf("%s: run would not ask the registry", table)
		}
	}
	schema := load(t, withSchema("schema: {subject: orders-value}")).Relay().Router.Mappings[0].Schema
	if schema.Register != nil {
		t.Errorf("%+v is registered unasked", schema.Register)
	}
}

func TestSchema_ThatCannotBeRegisteredIsRefused(t *testing.T) {
	for table, want := range map[string]string{
		"schema: {file: order.avsc, register: true}":                                                "schema.register: needs a literal subject, and the subject ${topic}-value differs by the topic of each row; set schema.subject to one subject",
		"topic: '${aggregate_type}', schema: {file: order.avsc, register: true}":                    "differs by the topic of each row",
		"topic: orders, topic_regex: '(.*)', schema: {file: order.avsc, register: true}":            "differs by the topic of each row",
		"topic: orders, schema: {file: order.avsc, register: true, subject: '${topic|upper}'}":      "differs by the topic of each row",
		"topic: orders, schema: {file: order.avsc, register: true, subject: '${event_type}-value'}": "differs by column event_type of each row",
		"schema: {register: true, subject: orders-value}":                                           "schema.file: is missing; register needs the file",
		"schema: {register: true, subject: orders-value, file: none.avsc}":                          "schema.file: read none.avsc",
		"schema: {register: true, subject: orders-value, file: bytes.avsc}":                         "schema.file: bytes.avsc",
		"schema: {register: true, subject: orders-value, file: order.avsc, id: 7}":                  "schema.id: has no effect with register",
		"schema: {file: order.avsc}":                                                                "schema.id: is missing; a file needs the number that the registry gave the schema, or register: true",
	} {
		_, err := Load(withSchema(table))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", table, err, want)
		}
	}
	o := withSchema("topic: orders, schema: {register: true, file: order.avsc}")
	o.Set = []string{"outbox.value=protobuf"}
	const words = "outbox[0].schema.register: takes no Protobuf; register the .proto file with the registry's own tools and leave this out"
	if _, err := Load(o); err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "schema.file") {
		t.Errorf("Protobuf: %v, want %q alone", err, words)
	}
	o = withSchema("schema: {register: true}")
	o.Set = []string{"outbox.value=raw"}
	if _, err := Load(o); err == nil || !strings.Contains(err.Error(), "outbox[0].schema.register") {
		t.Errorf("with value: raw: %v", err)
	}
}

// A struct tag cannot be computed, so the formats stand in settings.go a second time.
func TestFormats_AreThoseOfTheRouter(t *testing.T) {
	keys := keysOf(reflect.TypeFor[outboxSettings]())
	for name, want := range map[string][]string{"key": format.Keys, "value": format.Values()} {
		if k, ok := findKey(keys, name); !ok || !slices.Equal(k.enum, want) {
			t.Errorf("%s: the configuration takes %q, the router %q", name, k.enum, want)
		}
	}
	for _, name := range format.Values() {
		if _, has := schemaKinds[name]; has != format.HasSchema(name) {
			t.Errorf("%s: has a language of schemas: %t", name, has)
		}
	}
}

// Each mistake about the registry is refused with what is allowed, and none shows a secret.
func TestRegistry_MistakesAreRefused(t *testing.T) {
	const secret = "hunter2"
	for keys, want := range map[string]string{
		"timeout: 5s":          "kafka.registry.url: is missing; a table's schema is asked for there",
		"url: [registry:8081]": "kafka.registry.url[0]: is no URL; allowed: https://host:port",
		"url: ['https://relay:" + secret + "@registry']":                                             "kafka.registry.url[0]: has credentials in it; write them to kafka.registry.username and password_file, or token_file",
		"url: ['https://a', 'http://registry:8081'], username: relay, password_file: secret":         "kafka.registry.url[1]: http shows the password or token to the network; allowed: https, or kafka.insecure: true",
		"url: ['http://registry:8081'], token_file: secret":                                          "kafka.registry.url[0]: http shows the password or token",
		"url: ['https://registry'], username: relay, password_file: secret, token_file: secret":      "kafka.registry.token_file: has no effect beside username",
		"url: ['https://registry'], password_file: secret":                                           "kafka.registry.username: is missing",
		"url: ['https://registry'], token_file: none":                                                "kafka.registry.token_file: read none",
		"url: ['https://registry'], timeout: 1ms":                                                    "kafka.registry.timeout: 1ms is not allowed; allowed: from 100ms to 1m",
		"url: ['https://registry'], refresh: 1ms":                                                    "kafka.registry.refresh: 1ms is not allowed; allowed: from 1s to 24h",
		"url: ['https://registry'], tls: {ca_file: secret}":                                          "kafka.registry.tls",
		"url: ['https://registry'], tls: {cert_file: secret}":                                        "kafka.registry.tls.key_file: is missing",
		"url: ['http://localhost:8081', 'https://registry'], username: relay, password_file: secret": "",
		"url: ['http://registry:8081']":                                                              "",
	} {
		o := withSchema("schema: {subject: a}")
		files := o.ReadFile
		o.ReadFile = func(name string) ([]byte, error) {
			switch name {
			case "secret":
				return []byte(secret), nil
			case "f":
				text, err := files(name)
				return []byte(strings.Replace(string(text), "url: [http://localhost:8081]", keys, 1)), err
			}
			return files(name)
		}
		_, err := Load(o)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", keys, err, want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%v", err)
		}
		if o.Set = []string{"kafka.insecure=true"}; strings.Contains(want, "http shows") {
			if _, err := Load(o); err != nil {
				t.Errorf("%s with kafka.insecure: %v", keys, err)
			}
		}
	}
	o := withSchema("schema: {subject: a}")
	o.Set = []string{"outbox.value=raw"}
	if _, err := Load(o); err == nil || !strings.Contains(err.Error(), "kafka.registry.url: has no effect without outbox[].value") {
		t.Errorf("a registry that nobody asks: %v", err)
	}
}
