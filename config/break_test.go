package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// keyLine is a line of the example that has a key: lead, key, value.
var keyLine = regexp.MustCompile(`^(\s*(?:- )?)([a-z_]+):(?: (.*))?$`)

// breakages are ways to break a line that people find. Each gives the lines that
// take its place, or nothing where it does not apply.
var breakages = []struct {
	name  string
	apply func(lead, key, value string) string
}{
	{"misspelt key", func(lead, key, value string) string { return lead + key + "x: " + value }},
	{"upper case", func(lead, key, value string) string { return lead + strings.ToUpper(key) + ": " + value }},
	{"no colon", func(lead, key, value string) string { return lead + key + " " + value }},
	{"no space behind the colon", func(lead, key, value string) string {
		if value == "" {
			return ""
		}
		return lead + key + ":" + value
	}},
	{"a mapping for a value", func(lead, key, value string) string {
		if value == "" || value == "{}" {
			return ""
		}
		return lead + key + ": {a: b}"
	}},
	{"a text for a section", func(lead, key, value string) string {
		if value != "" && value != "{}" {
			return ""
		}
		return lead + key + ": nonsense"
	}},
	{"a list for a mapping", func(lead, key, value string) string {
		if value != "{}" {
			return ""
		}
		return lead + key + ": [a]"
	}},
	{"a variable that is not set", func(lead, key, value string) string {
		if value == "" || value == "{}" || key == "topic" {
			return ""
		}
		return lead + key + ": ${NO_SUCH_VARIABLE}"
	}},
	{"a quote that is not closed", func(lead, key, value string) string {
		if value == "" {
			return ""
		}
		return lead + key + `: "` + strings.Trim(value, `"`)
	}},
	{"a bracket that is not closed", func(lead, key, value string) string {
		if value == "" {
			return ""
		}
		return lead + key + ": [" + strings.Trim(value, "[]{}")
	}},
	{"a tab", func(lead, key, value string) string {
		if !strings.HasPrefix(lead, " ") {
			return ""
		}
		return "\t" + key + ": " + value
	}},
	{"given twice", func(lead, key, value string) string {
		if value == "" || strings.Contains(lead, "-") {
			return ""
		}
		return lead + key + ": " + value + "\n" + lead + key + ": " + value
	}},
}

// Whoever breaks one line of the example gets an error that points at it.
func TestExample_EveryBrokenLineIsPointedAt(t *testing.T) {
	content, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(content), "\n")
	tried, loads := 0, 0
	for i, line := range lines {
		m := keyLine.FindStringSubmatch(line)
		if m == nil {
			if line != "" && !strings.HasPrefix(strings.TrimSpace(line), "#") {
				t.Errorf("line %d is neither a key nor a comment: %s", i+1, line)
			}
			continue
		}
		for _, b := range breakages {
			text := b.apply(m[1], m[2], m[3])
			if text == "" || text == line {
				continue
			}
			if tried++; tried%everyExample() != 0 {
				continue
			}
			loads++
			broken := strings.Join(lines[:i], "\n") + "\n" + text + "\n" + strings.Join(lines[i+1:], "\n")
			last := i + 1 + strings.Count(text, "\n")
			if err := pointsAt(broken, i+1, last); err != nil {
				t.Errorf("%s in line %d:\n%s\n%v", b.name, i+1, text, err)
			}
		}
	}
	if tried < 500 || loads < tried/everyExample() {
		t.Errorf("only %d breakages, of which %d were tried", tried, loads)
	}
}

// everyExample is how many changes of the example go to one that is tried: with -short, one in eight.
func everyExample() int {
	if testing.Short() {
		return 8
	}
	return 1
}

// pointsAt says what is wrong with the errors of a file that is broken between
// two lines.
func pointsAt(content string, first, last int) error {
	_, err := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": content}.read})
	errs, ok := errors.AsType[*Errors](err)
	if !ok {
		return fmt.Errorf("the error is %w", err)
	}
	for _, e := range errs.List {
		if e.Line >= first && e.Line <= last && e.Column > 0 {
			return nil
		}
	}
	return fmt.Errorf("no error points at it: %w", err)
}

// wrongTexts are values that a key of text refuses whatever the rest says. Keys
// with none take any text that a server may know.
var wrongTexts = map[string][]string{
	"postgres.url":                     {"http://shop", "postgres://relay@localhost:99999/shop", "postgres://relay@localhost/shop?sslmode=maybe", "nonsense"},
	"postgres.password":                nil,
	"postgres.password_file":           {"/no/such/file"},
	"postgres.own_shards":              {"1", "x", "-1"},
	"postgres.slot":                    {`""`, "Cdc-Relay", "a b"},
	"postgres.publication":             {`""`, strings.Repeat("p", 64)},
	"outbox.table":                     {`""`, "a.b.c", `'"half'`},
	"outbox.message_prefix":            {"beside_a_table"},
	"outbox.preset":                    {"debezum", "MassTransit"},
	"outbox.columns.id":                {"body#/~9"},
	"outbox.columns.key":               {"body#/~9"},
	"outbox.columns.route":             {"body#/~9"},
	"outbox.columns.type":              {"body#/~9"},
	"outbox.columns.payload":           {"body#/~9"},
	"outbox.columns.headers":           {"body#/~9"},
	"outbox.columns.trace":             {"body#/~9"},
	"outbox.columns.timestamp":         {"body#/~9"},
	"outbox.topic":                     {"${a|shout}", "${a", "or/ders", "${}", "'x y'"},
	"outbox.topic_regex":               {"'('", "'(?=x)'"},
	"outbox.cloudevents_source":        {"/shop", "'no uri'"},
	"outbox.partition":                 {"body#/~9"},
	"relay.dead_letter_topic":          {"'a b'", "a/b"},
	"relay.checkpoint_topic":           {"'a b'", "a/b"},
	"outbox.debezium":                  {"x", "{topic.prefix: a b}", "{topic.prefx: a}", "{topic.prefix: a, database.hostname: b}", "{topic.prefix: a, key.converter: b}"},
	"kafka.tls.ca_file":                {"/no/such/file"},
	"kafka.tls.cert_file":              {"/no/such/file"},
	"kafka.tls.key_file":               {"/no/such/file"},
	"kafka.tls.server_name":            {"kafka.example.com"},
	"kafka.sasl.username":              {"relay"},
	"kafka.sasl.password":              {"secret"},
	"kafka.sasl.password_file":         {"/no/such/file"},
	"kafka.oauth.token_endpoint":       {"https://login.example.com"},
	"kafka.oauth.client_id":            {"relay"},
	"kafka.oauth.client_secret":        {"secret"},
	"kafka.oauth.client_secret_file":   {"/no/such/file"},
	"kafka.oauth.scope":                {"kafka"},
	"kafka.region":                     {"eu-west-1"},
	"http.listen":                      {"localhost", "127.0.0.1:http", ":99999"},
	"http.token":                       nil,
	"http.token_file":                  {"/no/such/file"},
	"http.console.operator_token_file": {"/no/such/file"},
	"http.hosts":                       {"http://relay:8080", "relay:8080"},
	"http.console.hosts":               {"http://relay:8080", "relay:8080"},
	"tracing.endpoint":                 {"collector:4318", "ftp://collector", "http://", "http://u:p@collector:4318", "'http://a b'"},
	"tracing.headers_file":             {"/no/such/file"},
	"tracing.tls.ca_file":              {"/no/such/file"},
	"tracing.tls.cert_file":            {"/no/such/file"},
	"tracing.tls.key_file":             {"/no/such/file"},
	"pipeline":                         {`""`, `"a\x01b"`},
	"postgres.password_command":        {"[a b]", "{a: b}"},
	"kafka.brokers":                    {"[]", "localhost", "[localhost:9092, 'b:x']", "[localhost:9092, 'b:0']", "[[a]]"},
	"outbox.headers":                   {"x", "{a: [b]}", "{a: '${b|shout}'}", "{a: ''}"},
	"outbox.value_fields":              {"x", "{a: [b]}", "{a: b}"},
	"kafka.oauth.extensions":           {"x", "{a: [b]}", "{a: b}"},
	"kafka.create_topics.config":       {"x", "{a: [b]}"},
	"outbox.retention.keep":            {"0", "7", "-1d", "0d", "59m", "soon", "1d2", "99999999d", "1h0.5s"},
	"outbox.retention.by":              {`""`, "sent_at"},
	"outbox.retention.export.to":       {"files", "gs://bucket/outbox"},
	"outbox.retention.export.region":   {"eu-west-1"},
	"outbox.retention.export.endpoint": {"http://minio:9000"},
	"outbox.retention.where":           {"sent", "'true) or (true'"},
	"outbox.retention.archive_table":   {"archive"},
	"outbox.mark.column":               {"a-column-with-a-name-that-is-longer-than-the-63-bytes-that-names-have-in-postgresql"},
	"outbox.mark.value":                {"sent"},
	"outbox.rejects.error":             {"last_error"},
	"outbox.rejects.attempts":          {"retry_count"},
	"maintenance.url":                  {"http://shop", "postgres://relay@localhost/shop?sslmode=maybe", "postgres://relay@localhost/shop"},
	"maintenance.password":             {"secret"},
	"maintenance.password_file":        {"/no/such/file"},
	"outbox.schema.subject":            {"${a|shout}", "${topic}"},
	"outbox.schema.version":            {"0", "newest", "-1", "3"},
	"outbox.schema.file":               {"/no/such/file"},
	"outbox.schema.id":                 {"7", "0"},
	"outbox.schema.message":            {"shop.Order"},
	"outbox.schema.validate":           {"true", "yes please"},
	"kafka.registry.url":               {"registry:8081", "https://registry:8081", "{a: b}"},
	"kafka.registry.username":          {"relay"},
	"kafka.registry.password":          {"secret"},
	"kafka.registry.password_file":     {"/no/such/file"},
	"kafka.registry.token_file":        {"/no/such/file"},
	"kafka.registry.tls.ca_file":       {"/no/such/file"},
	"kafka.registry.tls.cert_file":     {"/no/such/file"},
	"kafka.registry.tls.key_file":      {"/no/such/file"},
	"maintenance.also_wait_for":        {"other", "[Bad]", "{a: b}"},
}

// wrongValues are what the type of a key refuses, or wrongTexts.
func wrongValues(path string, k key) ([]string, bool) {
	switch {
	case len(k.enum) > 0:
		return []string{"nonsense", strings.ToUpper(k.enum[0]), "3"}, true
	case k.typ == durationType:
		return []string{"30", "-1s", "soon", "1 fortnight"}, true
	case k.typ == sizeType:
		return []string{"5", "-1MiB", "1.5MiB", "lots", "0B", "99999999GiB"}, true
	case k.typ.Kind() == reflect.Bool:
		return []string{"perhaps", "yes", "1", "True"}, true
	case k.typ.Kind() == reflect.Float64:
		return []string{"half", "-0.1", "1.5", "NaN", "Inf"}, true
	case k.typ.Kind() == reflect.Int:
		return []string{"many", "1.5", "-7", "0", "99999999999"}, true
	}
	wrong, known := wrongTexts[path]
	return wrong, known
}

// Whoever gives one key of the example a value that it cannot have gets an error
// that points at its line.
func TestExample_EveryWrongValueIsPointedAt(t *testing.T) {
	content, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]key{}
	eachKey(reflect.TypeFor[settings](), "", func(path string, k key) { keys[path] = k })
	lines := strings.Split(string(content), "\n")
	type level struct {
		indent int
		name   string
	}
	var above []level
	tried := 0
	for i, line := range lines {
		m := keyLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		for len(above) > 0 && above[len(above)-1].indent >= len(m[1]) {
			above = above[:len(above)-1]
		}
		path := ""
		for _, l := range above {
			path = join(path, l.name)
		}
		path = join(path, m[2])
		above = append(above, level{len(m[1]), m[2]})
		k, leaf := keys[path]
		if !leaf {
			continue
		}
		delete(keys, path)
		wrong, known := wrongValues(path, k)
		if !known {
			t.Errorf("%s: no wrong values are known; add them to wrongTexts", path)
		}
		for _, value := range wrong {
			if tried++; tried%everyExample() != 0 {
				continue
			}
			text := m[1] + m[2] + ": " + value
			broken := strings.Join(lines[:i], "\n") + "\n" + text + "\n" + strings.Join(lines[i+1:], "\n")
			if err := pointsAt(broken, i+1, i+1); err != nil {
				t.Errorf("line %d:\n%s\n%v", i+1, text, err)
			}
		}
	}
	for path := range keys {
		t.Errorf("the example has no line for %s", path)
	}
}

// A secret that could not be read is there: saying that it is missing as well
// would send people looking for another key.
func TestSecrets_OneMistakeIsOneMessage(t *testing.T) {
	for _, c := range []struct{ content, key string }{
		{"postgres: {url: postgres://relay@localhost/shop, password: \"${file:/nope}\"}\noutbox: [{table: o}]\nkafka: {brokers: [localhost:9092]}\n", "postgres.password"},
		{minimal + "  sasl: {mechanism: scram-sha-256, username: u, password: \"${file:/nope}\"}\n", "kafka.sasl.password"},
		{minimal + "  sasl: {mechanism: scram-sha-256, username: u, password_file: \"${NOPE}\"}\n", "kafka.sasl.password_file"},
		{minimal + "  sasl: {mechanism: scram-sha-256, username: u, password_file: /nope}\n", "kafka.sasl.password_file"},
		{minimal + "  sasl: {mechanism: scram-sha-256, username: \"${NOPE}\", password: p}\n", "kafka.sasl.username"},
		{minimal + "  sasl: {mechanism: oauthbearer}\n  oauth: {client_id: c, token_endpoint: \"https://x/y\", client_secret: \"${file:/nope}\"}\n", "kafka.oauth.client_secret"},
		{minimal + "  sasl: {mechanism: oauthbearer}\n  oauth: {client_id: c, token_endpoint: \"https://x/y\", client_secret_file: \"${NOPE}\"}\n", "kafka.oauth.client_secret_file"},
		{minimal + "  tls: {enabled: true, cert_file: \"${NOPE}\", key_file: /nope}\n", "kafka.tls.cert_file"},
		{minimal + "  tls: {enabled: true, cert_file: /nope, key_file: \"${NOPE}\"}\n", "kafka.tls.key_file"},
		{minimal + "http: {listen: \":8080\", token: \"${file:/nope}\"}\n", "http.token"},
	} {
		_, err := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": c.content}.read})
		errs, ok := errors.AsType[*Errors](err)
		if !ok || len(errs.List) != 1 || errs.List[0].Key != c.key {
			t.Errorf("%s\n%v", c.content, err)
		}
	}
}
