package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/sink/auth"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
)

// withPreset loads a minimal file with a preset and more lines of kafka.
func withPreset(t *testing.T, preset, more string) *Config {
	t.Helper()
	files := testFiles{"f": minimal + "  preset: " + preset + "\n" + more, "pw": "s3cret", "ca": "", "cert": "", "key": ""}
	files["cert"], files["key"] = certificate(t, 1)
	files["ca"] = files["cert"]
	return load(t, Options{Path: "f", ReadFile: files.read})
}

func TestKafkaPreset_SetsWhatTheServiceWants(t *testing.T) {
	for preset, tt := range map[string]struct {
		more, mechanism, user, compression string
	}{
		"msk-iam":         {"", auth.AWSMSKIAM, "", "snappy"},
		"confluent-cloud": {"  sasl: {username: key, password_file: pw}\n", auth.Plain, "key", "snappy"},
		"event-hubs":      {"  sasl: {password_file: pw}\n", auth.Plain, "$ConnectionString", "none"},
		"aiven":           {"  tls: {ca_file: ca, cert_file: cert, key_file: key}\n", "", "", "snappy"},
		"redpanda":        {"  sasl: {username: u, password_file: pw}\n", auth.ScramSHA256, "u", "snappy"},
	} {
		t.Run(preset, func(t *testing.T) {
			cfg := withPreset(t, preset, tt.more)
			k := cfg.Relay().Kafka
			if k.TLS == nil || k.SASL.Mechanism != tt.mechanism || k.SASL.Username != tt.user || k.Compression != tt.compression {
				t.Errorf("TLS %v, mechanism %q, user %q, compression %q", k.TLS != nil, k.SASL.Mechanism, k.SASL.Username, k.Compression)
			}
			if _, err := kafka.New(k, zerolog.Nop()); err != nil {
				t.Errorf("the sink refuses it: %v", err)
			}
			if len(cfg.Warnings) > 0 {
				t.Errorf("warnings: %q", cfg.Warnings)
			}
			if out := printed(t, cfg); !strings.Contains(out, "enabled: true  # preset "+preset+"\n") {
				t.Errorf("the origin is not shown:\n%s", out)
			}
		})
	}
	if len(kafkaPresets) != 5 {
		t.Error("a preset without a test")
	}
}

func TestKafkaPreset_IsAnEnumAndABundle(t *testing.T) {
	keys := keysOf(reflect.TypeFor[kafkaSettings]())
	k, ok := findKey(keys, "preset")
	if !ok || len(k.enum) != len(kafkaPresets) {
		t.Fatalf("%d words, %d bundles", len(k.enum), len(kafkaPresets))
	}
	for _, name := range k.enum {
		if kafkaPresets[name] == nil {
			t.Errorf("no bundle for %s", name)
		}
	}
}

func TestKafkaPreset_GivesWayToWhatIsSet(t *testing.T) {
	cfg := withPreset(t, "event-hubs", "  compression: zstd\n  sasl: {mechanism: oauthbearer}\n  oauth: {token_endpoint: 'https://login/token', client_id: c, client_secret: s}\n")
	k := cfg.Relay().Kafka
	if k.Compression != "zstd" || k.SASL.Mechanism != auth.OAuthBearer || k.SASL.Username != "" || k.TLS == nil {
		t.Errorf("%+v", k)
	}
	if len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0], "kafka.sasl.mechanism: oauthbearer (from f:9) overrides plain of preset event-hubs") {
		t.Errorf("warnings: %q", cfg.Warnings)
	}
	// A preset from the environment fills the file's gaps just the same.
	cfg = load(t, Options{Path: "f", ReadFile: testFiles{"f": minimal}.read, Environ: []string{"CDC_RELAY_KAFKA_PRESET=msk-iam"}})
	if cfg.Relay().Kafka.SASL.Mechanism != auth.AWSMSKIAM {
		t.Error("the preset of the environment is not applied")
	}
	// The full example with a preset added keeps its explicit values, and says so.
	cfg = withPreset(t, "msk-iam", "  tls: {enabled: false}\n  sasl: {mechanism: \"\"}\n")
	if len(cfg.Warnings) != 2 || cfg.Relay().Kafka.TLS != nil {
		t.Errorf("warnings: %q", cfg.Warnings)
	}
}

func TestKafkaPreset_SaysWhatIsStillMissing(t *testing.T) {
	for preset, want := range map[string]string{
		"confluent-cloud": "kafka.sasl.username: is missing",
		"event-hubs":      "kafka.sasl.password_file: is missing",
		"redpanda":        "kafka.sasl.password_file: is missing",
		"aiven":           "kafka.tls.cert_file: is missing; preset aiven authenticates by client certificate",
		"conduktor":       `"conduktor" is not allowed; allowed: msk-iam, confluent-cloud, event-hubs, aiven, redpanda`,
	} {
		_, err := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": minimal + "  preset: " + preset + "\n"}.read})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", preset, err, want)
		}
	}
}
