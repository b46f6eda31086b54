package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the console keeps, and for whom it answers, has limits that the message names.
func TestLoad_RefusesAConsoleWithoutSense(t *testing.T) {
	for name, tt := range map[string]struct{ http, want string }{
		"more than six hours":   {"  console: {history: 7h}\n", "http.console.history: 7h0m0s is not allowed; allowed: 1m to 6h, or 0s for none"},
		"less than a minute":    {"  console: {history: 30s}\n", "http.console.history: 30s is not allowed"},
		"a time before":         {"  console: {history: -1h}\n", "http.console.history"},
		"a host with a port":    {"  console: {hosts: [\"relay:8080\"]}\n", "http.console.hosts[0]"},
		"hosts without HTTP":    {"  listen: \"\"\n  console: {hosts: [relay]}\n", "http.console.hosts: has no effect without http.listen"},
		"figures without HTTP":  {"  listen: \"\"\n  console: {history: 30m}\n", "http.console.history: has no effect without http.listen"},
		"figures of no console": {"  console: {enabled: false, history: 30m}\n", "http.console.history: has no effect without http.console.enabled"},
		"as usual, and none":    {"  console: {enabled: false, history: 1h}\n", ""},
		"six hours":             {"  console: {history: 6h}\n", ""},
		"none is kept":          {"  console: {history: 0s}\n", ""},
		"a key that is unknown": {"  console: {colour: red}\n", "http.console.colour"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cdc-relay.yaml")
			text := "postgres:\n  url: postgres://relay@127.0.0.1/shop\nkafka:\n  brokers: [127.0.0.1:9092]\noutbox:\n  - table: public.outbox\nhttp:\n" + tt.http
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(Options{Path: path})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}
