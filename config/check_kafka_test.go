package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/relay"
)

// What the configuration accepts the sink accepts, and what it refuses the sink refuses.
func TestKafka_TokenEndpointIsJudgedAlikeByFileAndSink(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint string
		insecure bool
		refused  string
	}{
		"https":                      {"https://idp.internal/token", false, ""},
		"http":                       {"http://idp.internal:8080/token", false, "kafka.insecure: true"},
		"http, insecure":             {"http://idp.internal:8080/token", true, ""},
		"http to this machine":       {"http://LOCALHOST:8080/token", false, ""},
		"with credentials":           {"https://relay:s3cret@idp.internal/token", false, "without credentials"},
		"with credentials, insecure": {"https://relay:s3cret@idp.internal/token", true, "without credentials"},
		"another scheme":             {"ftp://idp.internal/token", true, "is no URL"},
	} {
		t.Run(name, func(t *testing.T) {
			yaml := fmt.Sprintf(`postgres: {url: "postgres://relay@localhost:5432/shop"}
outbox: [{table: public.outbox}]
kafka:
  brokers: [localhost:9092]
  insecure: %t
  sasl: {mechanism: oauthbearer}
  oauth: {token_endpoint: %q, client_id: relay, client_secret: s3cret}
`, c.insecure, c.endpoint)
			cfg, err := Load(Options{Path: "t.yaml", Environ: []string{}, ReadFile: func(file string) ([]byte, error) {
				if file == "t.yaml" {
					return []byte(yaml), nil
				}
				return nil, os.ErrNotExist
			}})
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("load: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if warned := strings.Contains(strings.Join(cfg.Warnings, "\n"), "token endpoint in clear text"); warned != c.insecure {
				t.Errorf("warnings: %q", cfg.Warnings)
			}
			if _, err := relay.Open(cfg.Relay(), relay.Events{}, zerolog.Nop()); err != nil {
				t.Errorf("accepted by the file, and then: %v", err)
			}
		})
	}
}

// A password in an address is a mistake that people make with clients that take one there. No
// message, no excerpt and no other mistake on the same line shows it.
func TestBrokers_AreNeverShownWithCredentials(t *testing.T) {
	for _, address := range []string{"SASL_PLAINTEXT://u:s3cret@h:1", "u:s3cret@h:1", "s3cret@h:1", "s3cret@h", "u:s3cret@h", "u:x@s3cret@h:1", "'u:s3cret@[::1]:9'"} {
		for name, text := range map[string]string{
			"list":       "  brokers: [" + address + "]\n",
			"text":       "  brokers: " + address + "\n",
			"block":      "  brokers:\n    - b1:9092\n    - " + address + "\n",
			"same line":  "  tls: {server_nam: a, enabled: nope}\n  sasl: {}\n  brokers: [" + address + ", []]\n",
			"flow":       "  create_topics: {nope: 1}\n",
			"not parsed": "  brokers: [" + address + "\n",
		} {
			file := strings.Replace(minimal, "  brokers: [localhost:9092]\n", text, 1)
			if name == "flow" {
				file = strings.Replace(minimal, "kafka:\n  brokers: [localhost:9092]\n", "kafka: {brokers: ["+address+"], linger: nope, nope: 1}\n", 1)
			}
			_, err := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": file}.read})
			if err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s, %s: %v", name, address, err)
			}
			if name == "list" && err != nil && !strings.Contains(err.Error(), "kafka.brokers[0]: holds a user or a password, which is not shown; allowed: host:port, for example b1:9092; credentials go to kafka.sasl.username") {
				t.Errorf("%s: %v", address, err)
			}
		}
		bare := strings.Trim(address, "'")
		for name, o := range map[string]Options{
			"environment": {Environ: append(slices.Clone(complete), "CDC_RELAY_KAFKA_BROKERS="+bare)},
			"flag":        {Environ: complete, Set: []string{"kafka.brokers=" + bare}},
			"listen":      {Environ: complete, Set: []string{"http.listen=" + bare + ":x"}},
		} {
			o.ReadFile = noFiles
			if _, err := Load(o); err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s, %s: %v", name, address, err)
			}
		}
	}
}
