package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever may act has a token of its own: everything that would let everybody act is refused.
func TestLoad_RefusesAConsoleAtWhichEverybodyCouldAct(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	viewer, operator, spaced := file("viewer", "sesame\n"), file("operator", "open-sesame\n"), file("spaced", "a b\n")
	for name, tt := range map[string]struct{ http, want string }{
		"actions":            {"  console: {actions: true}\n", "http.console.actions: needs http.console.operator_token_file"},
		"payloads":           {"  console: {payloads: true}\n", "http.console.payloads: needs http.console.operator_token_file"},
		"a file for nothing": {"  console: {operator_token_file: " + operator + "}\n", "http.console.operator_token_file: has no effect without http.console.actions or http.console.payloads"},
		"no file there":      {"  console: {actions: true, operator_token_file: " + dir + "/none}\n", "http.console.operator_token_file: read "},
		"equal tokens":       {"  token_file: " + viewer + "\n  console: {actions: true, operator_token_file: " + viewer + "}\n", "holds the same token as http.token"},
		"a token in text":    {"  token: sesame\n  console: {actions: true, operator_token_file: " + viewer + "}\n", "holds the same token as http.token"},
		"a space in it":      {"  console: {actions: true, operator_token_file: " + spaced + "}\n", "the token holds a space"},
		"no console":         {"  console: {enabled: false, actions: true, operator_token_file: " + operator + "}\n", "http.console.actions: has no effect without http.console.enabled"},
		"no HTTP":            {"  listen: \"\"\n  console: {actions: true, operator_token_file: " + operator + "}\n", "http.console.actions: has no effect without http.listen"},
		"as it should be":    {"  token_file: " + viewer + "\n  console: {actions: true, payloads: true, operator_token_file: " + operator + "}\n", ""},
		"on loopback":        {"  console: {actions: true, operator_token_file: " + operator + "}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := file("cdc-relay.yaml", "postgres:\n  url: postgres://relay@127.0.0.1/shop\nkafka:\n  brokers: [127.0.0.1:9092]\noutbox:\n  - table: public.outbox\nhttp:\n"+tt.http)
			cfg, err := Load(Options{Path: path})
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want == "":
				given := cfg.HTTP()
				if token, err := given.Operator(); err != nil || token != "open-sesame" || !given.Actions {
					t.Errorf("%q %v %t", token, err, given.Actions)
				}
			case err == nil || !strings.Contains(err.Error(), tt.want):
				t.Errorf("%v, want %s", err, tt.want)
			}
			if err != nil && (strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "a b")) && !strings.Contains(tt.http, "token: sesame") {
				t.Errorf("a token shows: %v", err)
			}
		})
	}
	cfg, err := Load(Options{Path: file("plain.yaml", "postgres:\n  url: postgres://relay@127.0.0.1/shop\nkafka:\n  brokers: [127.0.0.1:9092]\noutbox:\n  - table: public.outbox\n")})
	if err != nil {
		t.Fatal(err)
	}
	if given := cfg.HTTP(); given.Operator != nil || given.Actions || given.Payloads {
		t.Error("there are operators although nobody asked for them")
	}
}
