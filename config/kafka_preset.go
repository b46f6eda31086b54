package config

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/cdc-relay/cdc-relay/sink/auth"
)

// kafkaPresets are defaults by service. What they leave open is what only the
// user can know: addresses, names and secrets.
var kafkaPresets = map[string][]pair{
	"msk-iam": {
		{"kafka.tls.enabled", "true"},
		{"kafka.sasl.mechanism", auth.AWSMSKIAM},
	},
	"confluent-cloud": {
		{"kafka.tls.enabled", "true"},
		{"kafka.sasl.mechanism", auth.Plain},
		{"kafka.create_topics.replication_factor", "3"},
	},
	// Event Hubs' ordinary tiers refuse compressed batches. The user is that word
	// for everybody, and the password the connection string.
	"event-hubs": {
		{"kafka.tls.enabled", "true"},
		{"kafka.sasl.mechanism", auth.Plain},
		{"kafka.sasl.username", "$ConnectionString"},
		{"kafka.compression", "none"},
	},
	"aiven": {
		{"kafka.tls.enabled", "true"},
	},
	"redpanda": {
		{"kafka.tls.enabled", "true"},
		{"kafka.sasl.mechanism", auth.ScramSHA256},
	},
}

// applyKafkaPreset sets what nothing else has set. It runs last, because every
// source may set the preset.
func (l *loader) applyKafkaPreset() {
	name := l.cfg.settings.Kafka.Preset
	at := l.cfg.origins["kafka.preset"]
	at.preset = name
	for _, p := range kafkaPresets[name] {
		// With another mechanism, the preset's user is not meant.
		if l.cfg.Given(p.Name) || p.Name == "kafka.sasl.username" && l.cfg.settings.Kafka.SASL.Mechanism != auth.Plain {
			l.warnOfPreset(name, p)
			continue
		}
		t, err := l.find(p.Name)
		if err == nil {
			err = setText(t.value, t.key, p.Value)
		}
		if err != nil {
			panic(fmt.Sprintf("kafka preset %s: %s: %v", name, p.Name, err)) //nolint:forbidigo // the bundles are ours, and a test applies each
		}
		l.cfg.origins[p.Name] = at
	}
}

// warnOfPreset warns of a value that takes the preset's protection away: whoever
// keeps a full file and adds the preset to it sets them without meaning to.
func (l *loader) warnOfPreset(name string, p pair) {
	if !slices.Contains([]string{"kafka.tls.enabled", "kafka.sasl.mechanism"}, p.Name) {
		return
	}
	t, err := l.find(p.Name)
	if err != nil {
		return
	}
	value := t.value.String()
	if t.value.Kind() == reflect.Bool {
		value = fmt.Sprint(t.value.Bool())
	}
	if value != p.Value {
		l.warn("%s: %s (%v) overrides %s of preset %s; remove the key to use the preset's value", p.Name, quote(value), l.cfg.origins[p.Name], p.Value, name)
	}
}

// checkKafkaPreset requires what a preset cannot know.
func (l *loader) checkKafkaPreset() {
	k := &l.cfg.settings.Kafka
	if k.Preset != "aiven" || k.SASL.Mechanism != "" || !k.TLS.Enabled {
		return
	}
	for _, o := range []pair{{"ca_file", k.TLS.CAFile}, {"cert_file", k.TLS.CertFile}, {"key_file", k.TLS.KeyFile}} {
		if o.Value == "" {
			l.refuse("kafka.tls."+o.Name, "is missing; preset aiven authenticates by client certificate: download ca.pem, service.cert and service.key from the service's page (or set kafka.sasl.mechanism)")
		}
	}
}
