package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

func printed(t *testing.T, cfg *Config) string {
	t.Helper()
	var out bytes.Buffer
	if err := cfg.Print(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

var everything = Options{Path: "cdc-relay.yaml", Environ: []string{
	"CDC_RELAY_KAFKA_SASL_PASSWORD=s3cret", "CDC_RELAY_HTTP_TOKEN=s3cret", "CDC_RELAY_OUTBOX_HEADERS=tenant=tenant_id",
}, Set: []string{"kafka.create_topics.enabled=true", "kafka.create_topics.config.scope=x ${y}", "log.level=debug", "postgres.url=postgres://relay:s3cret@db/shop?sslpassword=s3cret&sslmode=disable"}}

const everythingFile = minimal + `  sasl: {mechanism: scram-sha-256, username: "a: #b"}
relay: {drain_timeout: 90s, max_in_flight_bytes: 1500kB}
pipeline: "null"
`

func TestPrint_ShowsOriginsAndHidesSecrets(t *testing.T) {
	o := everything
	o.ReadFile = testFiles{"cdc-relay.yaml": everythingFile}.read
	out := printed(t, load(t, o))
	if strings.Contains(out, "s3cret") {
		t.Error("shows a secret")
	}
	compareGolden(t, "testdata/print.golden", out)
}

func TestPrint_CanBeLoadedAgain(t *testing.T) {
	o := everything
	o.ReadFile = testFiles{"cdc-relay.yaml": everythingFile}.read
	first := load(t, o)
	again := load(t, Options{Path: "again", ReadFile: testFiles{"again": printed(t, first)}.read})
	want := hideSecrets(normal(first))
	if got := normal(again); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	for _, file := range []string{"testdata/valid/full.yaml", "testdata/valid/minimal.yaml", exampleFile} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files := testFiles{"f": string(content), "secrets/oauth": "x", "secrets/token": "x"}
		first := load(t, Options{Path: "f", ReadFile: files.read})
		files["again"] = printed(t, first)
		again := load(t, Options{Path: "again", ReadFile: files.read})
		if got, want := normal(again), hideSecrets(normal(first)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", file, got, want)
		}
	}
}

// hideSecrets does what Print does.
func hideSecrets(s settings) settings {
	hide := func(v *secret) { *v = secret(v.String()) }
	hide(&s.Postgres.Password)
	hide(&s.Kafka.SASL.Password)
	hide(&s.Kafka.OAuth.ClientSecret)
	hide(&s.HTTP.Token)
	s.Postgres.URL = dsn(s.Postgres.URL.String())
	return s
}

func TestSecret_HidesInEveryForm(t *testing.T) {
	s := secret("s3cret")
	holder := struct {
		S secret
		P *secret
	}{s, &s}
	asJSON, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	out := string(asJSON)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		out += fmt.Sprintf(verb, s) + fmt.Sprintf(verb, holder)
	}
	for _, leak := range []string{"s3cret", fmt.Sprintf("%x", "s3cret"), fmt.Sprintf("%X", "s3cret")} {
		if strings.Contains(out, leak) {
			t.Errorf("%q is in %q", leak, out)
		}
	}
}

func TestDSN_HidesPasswords(t *testing.T) {
	for text, want := range map[string]string{
		"postgres://u:s3cret@h:1,h2/db?sslmode=disable":              "postgres://u:***@h:1,h2/db?sslmode=disable",
		"postgresql://u@h/db?password=s3cret&sslpassword=s3cret":     "postgresql://u@h/db?password=***&sslpassword=***",
		"postgres:///db?host=/tmp":                                   "postgres:///db?host=/tmp",
		"postgres://u:s3cret@[::1]:5/db":                             "postgres://u:***@[::1]:5/db",
		"postgres://u:s3#cret@h/db":                                  "postgres://u:***@h/db",
		"host=h user=u password = 's3cret with \\' spaces' dbname=d": "host=h user=u password=*** dbname=d",
		"host=h password=s3cret":                                     "host=h password=***",
		"postgres://u:s3cret/x@h/db":                                 "***",
		"postgres://u:s3cret?x@h/db":                                 "***",
		"postgres://u:s3cret@x@h/db":                                 "***",
		"postgres://u:12?s3cret@h/db":                                "***",
		"u:s3cret@h/db":                                              "***",
		"host=h password='s3cret":                                    "***",
		"mysql://u:s3cret@h/db":                                      "***",
		"":                                                           "",

		// What is not known to be harmless is hidden, however its name is written.
		"postgres://u@h/db?options=-c%20my.secret=s3cret&sslmode=disable": "postgres://u@h/db?options=***&sslmode=disable",
		"postgres://u@h/db?my.setting=s3cret":                             "postgres://u@h/db?my.setting=***",
		"postgres://u@h/db?p%61ssword=s3cret":                             "postgres://u@h/db?p%61ssword=***",
		"host=h options='-c my.setting=s3cret' application_name=a":        "host=h options=*** application_name=a",
	} {
		if got := dsn(text).String(); got != want {
			t.Errorf("%s prints as %s, want %s", text, got, want)
		}
	}
}
