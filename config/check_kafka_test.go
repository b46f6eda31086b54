package config

import (
	"fmt"
	"os"
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
