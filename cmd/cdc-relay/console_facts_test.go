package main

import (
	"io"
	"os"
	"testing"
)

// Whoever copies a command is in another directory than the relay, and knows whether the brokers ask for a login.
func TestConsole_CommandsNameTheFileOfThisRelay(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	const plain = "postgres: {url: 'postgres://relay@localhost/shop'}\noutbox: [{table: public.outbox}]\n"
	for content, secured := range map[string]bool{
		plain + "kafka: {brokers: ['localhost:9092']}\n":                                                                          false,
		plain + "kafka: {brokers: ['localhost:9092'], tls: {enabled: true}}\n":                                                    true,
		plain + "kafka: {brokers: ['localhost:9092'], sasl: {mechanism: scram-sha-512, username: relay, password: a password}}\n": true,
	} {
		if err := os.WriteFile("orders.yaml", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		a := &app{process: process{stdout: io.Discard, stderr: io.Discard, env: []string{"HOME=/nonexistent"}}, configPath: "orders.yaml"}
		cfg, err := a.load()
		if err != nil {
			t.Fatal(err)
		}
		if f := a.consoleTools(cfg, cfg.Relay(), nil).Facts; f.File != here+"/orders.yaml" || f.Secured != secured {
			t.Errorf("%s: %+v", content, f)
		}
	}
	if got := configFile(""); got != "" {
		t.Errorf("without a file: %q", got)
	}
}
