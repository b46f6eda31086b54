package config

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// testFiles is a file system in memory.
type testFiles map[string]string

func (f testFiles) read(name string) ([]byte, error) {
	if text, ok := f[name]; ok {
		return []byte(text), nil
	}
	return noFiles(name)
}

const minimal = `postgres:
  url: postgres://relay@localhost/shop
outbox:
  - table: public.outbox
kafka:
  brokers: [localhost:9092]
`

// complete is a configuration without a file.
var complete = []string{
	"CDC_RELAY_POSTGRES_URL=postgres://relay@localhost/shop",
	"CDC_RELAY_KAFKA_BROKERS=localhost:9092, 127.0.0.1:9093",
	"CDC_RELAY_OUTBOX_TABLE=events",
}

func load(t *testing.T, o Options) *Config {
	t.Helper()
	if o.Environ == nil {
		o.Environ = []string{}
	}
	if o.ReadFile == nil {
		o.ReadFile = noFiles
	}
	cfg, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestLoad_EnvironmentAloneIsComplete(t *testing.T) {
	cfg := load(t, Options{Environ: complete})
	got := cfg.Relay()
	if want := []string{"localhost:9092", "127.0.0.1:9093"}; !reflect.DeepEqual(got.Kafka.Brokers, want) {
		t.Errorf("brokers %q", got.Kafka.Brokers)
	}
	if want := []wal.Table{{Schema: "public", Name: "events"}}; !reflect.DeepEqual(got.Replication.Tables, want) {
		t.Errorf("tables %v", got.Replication.Tables)
	}
	if got.Router.Mappings[0].Preset != "auto" || got.Replication.Slot != "cdc_relay" {
		t.Errorf("defaults are missing: %+v", got)
	}
}

func TestLoad_PlainVariablesCountOnlyWhenNothingElseDoes(t *testing.T) {
	env := []string{"POSTGRES_URL=postgres://plain@localhost/a", "KAFKA_BROKERS=localhost:1"}
	cfg := load(t, Options{Environ: append(env, "CDC_RELAY_OUTBOX_TABLE=events")})
	if r := cfg.Relay(); !strings.Contains(r.Replication.URL, "plain") || r.Kafka.Brokers[0] != "localhost:1" {
		t.Errorf("not used: %v", r.Kafka.Brokers)
	}
	cfg = load(t, Options{Path: "f", ReadFile: testFiles{"f": minimal}.read, Environ: env})
	if r := cfg.Relay(); strings.Contains(r.Replication.URL, "plain") || r.Kafka.Brokers[0] != "localhost:9092" {
		t.Errorf("overrides the file: %v", r.Kafka.Brokers)
	}
}

func TestLoad_FlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	o := Options{Path: "f", ReadFile: testFiles{"f": minimal}.read}
	steps := []struct {
		slot, origin string
		more         func()
	}{
		{"cdc_relay", "default", func() {}},
		{"from_file", "from f:3", func() {
			o.ReadFile = testFiles{"f": strings.Replace(minimal, "outbox:", "  slot: from_file\noutbox:", 1)}.read
		}},
		{"from_env", "from env CDC_RELAY_POSTGRES_SLOT", func() { o.Environ = []string{"CDC_RELAY_POSTGRES_SLOT=from_env"} }},
		{"from_flag", "from --set", func() { o.Set = []string{"postgres.slot=first", "postgres.slot=from_flag"} }},
	}
	for _, s := range steps {
		s.more()
		cfg := load(t, o)
		if got := cfg.Relay().Replication.Slot; got != s.slot {
			t.Errorf("slot %s, want %s", got, s.slot)
		}
		var out bytes.Buffer
		if err := cfg.Print(&out); err != nil {
			t.Fatal(err)
		}
		if want := "  slot: " + s.slot + "  # " + s.origin + "\n"; !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestLoad_FindsTheFile(t *testing.T) {
	files := testFiles{}
	for _, place := range []string{"/etc/cdc-relay/config.yaml", "cdc-relay.yaml", "/from/env", "/from/flag"} {
		files[place] = minimal
	}
	o := Options{Path: "/from/flag", Environ: []string{"CDC_RELAY_CONFIG=/from/env"}, ReadFile: files.read}
	if got := load(t, o).Path; got != "/from/flag" {
		t.Errorf("with --config: %s", got)
	}
	o.Path = ""
	if got := load(t, o).Path; got != "/from/env" {
		t.Errorf("with the variable: %s", got)
	}
	o.Environ = []string{}
	for _, want := range []string{"cdc-relay.yaml", "/etc/cdc-relay/config.yaml"} {
		if got := load(t, o).Path; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		delete(files, want)
	}
	o.Environ = complete
	if got := load(t, o).Path; got != "" {
		t.Errorf("without a file: %s", got)
	}
}

func TestLoad_NamesAMissingOrUnreadableFile(t *testing.T) {
	for _, o := range []Options{
		{Path: "/no/such", ReadFile: noFiles, Environ: []string{}},
		{ReadFile: noFiles, Environ: []string{"CDC_RELAY_CONFIG=/no/such"}},
	} {
		_, err := Load(o)
		if want := "/no/such: cannot read the configuration: file does not exist; correct the path, or put the file there"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if errs := (*Errors)(nil); !errors.As(err, &errs) {
			t.Errorf("%T is no *Errors", err)
		}
	}
	denied := func(name string) ([]byte, error) {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrPermission}
	}
	if _, err := Load(Options{ReadFile: denied, Environ: complete}); err == nil || !strings.HasPrefix(err.Error(), "cdc-relay.yaml: ") {
		t.Errorf("a file that may not be read is passed over: %v", err)
	}
}

// A directory, a file of somebody else's and one that is not there each have their next step.
func TestLoad_SaysWhatToDoAboutAFileThatCannotBeRead(t *testing.T) {
	for cause, want := range map[error]string{
		os.ErrNotExist: "put the file there", os.ErrPermission: "make it readable", syscall.EISDIR: "name the file in it", syscall.EIO: "name a file",
	} {
		failing := func(name string) ([]byte, error) { return nil, &os.PathError{Op: "open", Path: name, Err: cause} }
		if _, err := Load(Options{Path: "relay.yaml", ReadFile: failing, Environ: complete}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", cause, err)
		}
		ca := "kafka:\n  tls: {enabled: true, ca_file: /ca.pem}\n"
		reads := func(name string) ([]byte, error) {
			if name == "relay.yaml" {
				return []byte(ca), nil
			}
			return failing(name)
		}
		if _, err := Load(Options{Path: "relay.yaml", ReadFile: reads, Environ: complete}); err == nil || !strings.Contains(err.Error(), "/ca.pem") || !strings.Contains(err.Error(), want) {
			t.Errorf("an authority's file, %v: %v", cause, err)
		}
	}
}

func TestLoad_CarriesEveryValue(t *testing.T) {
	content, err := os.ReadFile("testdata/valid/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files := testFiles{"f": string(content), "secrets/oauth": "oauth-secret\n", "secrets/token": "token-1\n"}
	cfg := load(t, Options{Path: "f", ReadFile: files.read})
	r := cfg.Relay()
	if p, err := r.Replication.Password(t.Context()); p != "hunter2" || err != nil {
		t.Errorf("password_command gave %q, %v", p, err)
	}
	if s, err := r.Kafka.SASL.OAuth.ClientSecret(t.Context()); s != "oauth-secret" || err != nil {
		t.Errorf("client secret %q, %v", s, err)
	}
	tlsConfig, err := r.Kafka.TLS()
	if err != nil || tlsConfig.ServerName != "kafka.internal" || tlsConfig.InsecureSkipVerify {
		t.Errorf("TLS %+v, %v", tlsConfig, err)
	}
	h := cfg.HTTP()
	if token, err := h.Token(); token != "token-1" || err != nil || h.Listen != ":8080" {
		t.Errorf("http %q %q %v", h.Listen, token, err)
	}
	r.Replication.Password, r.Kafka.SASL.OAuth.ClientSecret, r.Kafka.TLS, r.Replication.Shard.Key = nil, nil, nil, nil
	want := relay.Config{
		Replication: postgres.Config{
			URL: "host=db1,db2 port=5432 user=relay dbname=shop sslmode=verify-full", Slot: "orders", Publication: "Orders", Shard: postgres.Shard{Count: 1, Slot: "orders", Publication: "Orders"},
			Tables: []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: "OutboxEvent"}}, Places: []string{"f:10", "f:19"}, WalSenderTimeout: 90 * time.Second,
		},
		Stream: replication.Options{MaxRowBytes: 32 << 20},
		Router: router.Config{Mappings: []router.Mapping{
			{
				Table: "public.outbox", Path: "outbox[0]", Preset: "outbox", Topic: "shop.${aggregate_type}", Key: "json_string", Value: "envelope",
				Headers:     []router.HeaderMapping{{Name: "tenant", Source: "tenant_id"}, {Name: "origin", Source: "relay-${region|default:eu}"}},
				ValueFields: []router.Field{{Name: "type", Column: "event_type"}, {Name: "when", Column: "created_at"}},
			},
			{
				Table: `public."OutboxEvent"`, Path: "outbox[1]", Preset: "auto", Columns: router.Columns{ID: "id", Key: "payload#/customer/id", Payload: "payload"},
				Topic: "${routedByValue}.events", TopicRegex: "(?<routedByValue>.*)", Key: "raw", Partition: "part", TombstoneOnEmpty: true,
			},
		}, Reserved: record.Reserved{
			{Name: "orders.letters", For: "dead letters (relay.dead_letter_topic)"}, {Name: "orders.checkpoints", For: "the positions of relays (relay.checkpoint_topic)"},
			{Name: "cdc-relay.dead-letters", For: "dead letters (relay.dead_letter_topic)"}, {Name: "__cdc_relay_checkpoints", For: "the positions of relays (relay.checkpoint_topic)"},
		}, PositionHeaders: true},
		Kafka:    wantKafka(),
		OnReject: relay.DeadLetterOnReject, DeadLetterTopic: "orders.letters", ParkKey: true,
		Guarantee: relay.ExactlyOnce, CommitInterval: 50 * time.Millisecond, CheckpointTopic: "orders.checkpoints",
		OnBlocked: relay.ExitWhenBlocked, MaxInFlightBytes: 64 << 20, DrainTimeout: 10 * time.Second, Pipeline: "orders",
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got\n%+v\nwant\n%+v", r, want)
	}
	if cfg.Log != (Log{"debug", "json"}) {
		t.Errorf("log %+v", cfg.Log)
	}
}

func TestLoad_ExpandsVariablesInValues(t *testing.T) {
	content, err := os.ReadFile("testdata/valid/variables.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files := testFiles{"f": string(content), "secrets/kafka": "kafka-secret\n"}
	cfg := load(t, Options{Path: "f", ReadFile: files.read, Environ: []string{
		"PGPASS=pg-secret", "KAFKA_USER=a: #b", "TABLE=shop.events", "BROKERS=b1:1,b2:2", "TLS=true", "PARTITIONS=3", "SLOT=",
	}})
	r := cfg.Relay()
	if want := "postgres://relay:pg-secret@db:5432/shop?sslmode=verify-full"; r.Replication.URL != want {
		t.Errorf("URL %q", r.Replication.URL)
	}
	if password, _ := r.Kafka.SASL.Password(t.Context()); password != "kafka-secret" {
		t.Errorf("password %q", password)
	}
	if r.Kafka.SASL.Username != "a: #b" {
		t.Errorf("a value changed the structure: %q", r.Kafka.SASL.Username)
	}
	m := r.Router.Mappings[0]
	if m.Topic != "${aggregate_type|lower}-events" || m.Headers[1].Source != "shop-${region}" {
		t.Errorf("templates were expanded: %+v", m)
	}
	if r.Pipeline != "a literal ${NAME}" || r.Replication.Slot != "orders" || r.Kafka.Linger != 5*time.Millisecond ||
		r.Kafka.CreateTopics.Partitions != 3 || len(r.Kafka.Brokers) != 2 || r.Kafka.TLS == nil || r.Replication.Tables[0].Schema != "shop" {
		t.Errorf("got %+v", r)
	}
}

func TestLoad_SetsTablesByPath(t *testing.T) {
	o := Options{Path: "f", ReadFile: testFiles{"f": minimal}.read, Set: []string{
		"outbox.topic=a-${aggregate_type}", "outbox[0].headers.x-tenant.id=tenant", "outbox.1.table=second", "outbox[1].key=json_string",
		"kafka.create_topics.enabled=true", "kafka.create_topics.config.retention.ms=60000", "kafka.oauth.extensions=a=b, c=d", "kafka.sasl.mechanism=oauthbearer",
		"kafka.oauth.client_id=relay", "kafka.oauth.client_secret=x", "kafka.oauth.token_endpoint=https://login.example.com/token", "postgres.password_command=[sh, -c, \"echo a,b\"]", "http.listen=",
	}}
	cfg := load(t, o)
	r := cfg.Relay()
	first, second := r.Router.Mappings[0], r.Router.Mappings[1]
	if first.Topic != "a-${aggregate_type}" || first.Headers[0] != (router.HeaderMapping{Name: "x-tenant.id", Source: "tenant"}) || second.Key != "json_string" || second.Table != "second" {
		t.Errorf("mappings %+v", r.Router.Mappings)
	}
	if r.Kafka.CreateTopics.Config["retention.ms"] != "60000" || r.Kafka.SASL.OAuth.Extensions["c"] != "d" || cfg.HTTP().Listen != "" {
		t.Errorf("got %+v", r.Kafka)
	}
	if p, err := r.Replication.Password(t.Context()); p != "a,b" || err != nil {
		t.Errorf("password %q, %v", p, err)
	}
}

// A list of host:port inside braces is a mapping to the parser.
func TestLoad_TakesBrokersInsideBraces(t *testing.T) {
	text := strings.Replace(minimal, "kafka:\n  brokers: [localhost:9092]", `kafka: {brokers: [localhost:9092, "[::1]:1", 127.0.0.1:2]}`, 1)
	cfg := load(t, Options{Path: "f", ReadFile: testFiles{"f": text}.read})
	if got := cfg.Relay().Kafka.Brokers; !reflect.DeepEqual(got, []string{"localhost:9092", "[::1]:1", "127.0.0.1:2"}) {
		t.Errorf("brokers %q", got)
	}
}

func TestLoad_TakesCRLFAndByteOrderMark(t *testing.T) {
	text := "\ufeff" + strings.ReplaceAll(minimal, "\n", "\r\n")
	load(t, Options{Path: "f", ReadFile: testFiles{"f": text}.read})
}

func TestLoad_WarnsAndGoesOn(t *testing.T) {
	env := append([]string{
		"CDC_RELAY_POSTGERS_URL=x", "CDC_RELAY_ODD=x", "CDC_RELAY_HTTP_LISTEN=:8080",
		"CDC_RELAY_PORT=tcp://10.0.0.1:80", "CDC_RELAY_SERVICE_HOST=10.0.0.1", "CDC_RELAY_SERVICE_PORT_HTTP=80", "CDC_RELAY_PORT_80_TCP_ADDR=10.0.0.1", "CDC_RELAY_METRICS_PORT_80_TCP=x",
		"CDC_RELAY_KAFKA_REGION=", "CDC_RELAY_POSTGRES_PASSWORD=",
	}, complete...)
	got := load(t, Options{Environ: env}).Warnings
	want := []string{
		"environment variable CDC_RELAY_POSTGERS_URL is not a setting and is ignored; did you mean CDC_RELAY_POSTGRES_URL?",
		"environment variable CDC_RELAY_ODD is not a setting and is ignored; settings are CDC_RELAY_ and the path of a key, as in CDC_RELAY_POSTGRES_URL",
		"http.listen: :8080 can be reached from other machines and http.token_file is not set: anybody there may read metrics and status",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLoad_WarnsAboutTLSAndUnusedPasswords(t *testing.T) {
	o := Options{Environ: []string{"CDC_RELAY_POSTGRES_PASSWORD=x", "CDC_RELAY_POSTGRES_URL=postgres://relay:other@db/shop?sslmode=require"}, Set: []string{
		"outbox.table=t", "kafka.brokers=b1:1", "kafka.insecure=true", "kafka.sasl.mechanism=plain", "kafka.sasl.username=u", "kafka.sasl.password=p",
	}}
	got := strings.Join(load(t, o).Warnings, "\n")
	for _, want := range []string{"postgres.url: sslmode=require", "postgres.url: its password is not used", "kafka.insecure: the credentials of plain go"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
}

// A variable with a typo is why a value is missing, and so is a file that is not there.
func TestLoad_WarnsBesideTheErrors(t *testing.T) {
	_, err := Load(Options{Environ: []string{"CDC_RELAY_KAFKA_BROKER=b1:1", "CDC_RELAY_POSTGRESS_URL=x"}, ReadFile: testFiles{}.read})
	errs, ok := errors.AsType[*Errors](err)
	if !ok {
		t.Fatal(err)
	}
	got := strings.Join(errs.Warnings, "\n")
	for _, want := range []string{
		"CDC_RELAY_KAFKA_BROKER is not a setting and is ignored; did you mean CDC_RELAY_KAFKA_BROKERS?",
		"CDC_RELAY_POSTGRESS_URL is not a setting and is ignored; did you mean CDC_RELAY_POSTGRES_URL?",
		"no configuration file was found: there is no cdc-relay.yaml in this directory and no /etc/cdc-relay/config.yaml; name one with --config FILE or CDC_RELAY_CONFIG",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	_, err = Load(Options{Environ: append([]string{"CDC_RELAY_POSTGRES_SLOT=Wrong"}, complete...), ReadFile: testFiles{}.read})
	if errs, ok := errors.AsType[*Errors](err); !ok || len(errs.Warnings) != 0 {
		t.Errorf("nothing is missing: %v, warnings %q", err, errs.Warnings)
	}
}

// The owner runs setup beside the relay's configuration.
func TestLoad_APasswordInAURLOnTheCommandLineIsUsed(t *testing.T) {
	files := testFiles{"f": minimal, "secret": "of the relay"}
	cfg := load(t, Options{Path: "f", ReadFile: files.read, Environ: []string{"CDC_RELAY_POSTGRES_PASSWORD_FILE=secret"}, Set: []string{"postgres.url=postgres://owner:own@localhost/shop"}})
	if got := cfg.Relay().Replication; got.Password != nil || len(cfg.Warnings) != 0 {
		t.Errorf("another password is used than that of the URL; warnings %q", cfg.Warnings)
	}
	cfg = load(t, Options{Path: "f", ReadFile: files.read, Environ: []string{"CDC_RELAY_POSTGRES_PASSWORD_FILE=secret"}, Set: []string{"postgres.url=postgres://owner@localhost/shop"}})
	if got := cfg.Relay().Replication; got.Password == nil {
		t.Error("the configured password is not used with a URL that has none")
	}
}

// A broker entry of 800 KB is no reason for a message of 800 KB.
func TestLoad_ShortensWhatItQuotes(t *testing.T) {
	_, err := Load(Options{Set: []string{"postgres.url=postgres://h/d", "outbox.table=outbox", "kafka.brokers=" + strings.Repeat("ä ", 400_000)}})
	if err == nil {
		t.Fatal("it is no address")
	}
	if text := err.Error(); len(text) > 20_000 || !strings.Contains(text, "characters left out") {
		t.Errorf("%d bytes: %.300s", len(text), text)
	}
}
