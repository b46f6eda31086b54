package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/migrations"
)

func TestSQL_PrintsTheTablesOfAConsumer(t *testing.T) {
	for _, format := range migrations.Formats() {
		got := invoke(t, closedPorts, "sql", "--inbox", "--format", format, "--role", "billing")
		got.want(t, exitOK, `CREATE TABLE IF NOT EXISTS "public".inbox (`, "")
		got.want(t, exitOK, `GRANT SELECT, INSERT, UPDATE (dead, at), DELETE ON TABLE "public".inbox TO "billing";`, "")
		for _, other := range []string{"slot", "PUBLICATION", "outbox", "CREATE ROLE"} {
			if strings.Contains(got.stdout, other) {
				t.Errorf("%s: it has %s:\n%s", format, other, got.stdout)
			}
		}
	}
	odd := invoke(t, nil, "sql", `--inbox=Odd "schema"`)
	odd.want(t, exitOK, `CREATE TABLE IF NOT EXISTS "Odd ""schema""".inbox_progress (`, "")
	if strings.Contains(odd.stdout, "GRANT") {
		t.Error("it grants something to nobody")
	}
	dir := t.TempDir()
	invoke(t, nil, "sql", "--inbox", "--format", "golang-migrate", "--number", "7", "--out", dir).want(t, exitOK, "000007_cdc_relay_inbox.up.sql", "")
	if down, err := os.ReadFile(filepath.Join(dir, "000007_cdc_relay_inbox.down.sql")); err != nil || !strings.Contains(string(down), "DROP TABLE IF EXISTS") {
		t.Errorf("%v\n%s", err, down)
	}
}

func TestSQL_OfAConsumerTakesNothingOfTheOutbox(t *testing.T) {
	for _, flag := range []string{"--create-table", "--preset=outbox", "--column-list", "--partitioned", "--service=rds", "--without-role", "--postgres-version=17", "--set=postgres.slot=a"} {
		name, _, _ := strings.Cut(flag, "=")
		invoke(t, nil, "sql", "--inbox", flag).want(t, exitUsage, "", name+" is about the outbox")
	}
	invoke(t, nil, "sql", "--inbox", "--number", "0").want(t, exitUsage, "", "allowed: 1 or more")
	invoke(t, nil, "sql", "--inbox="+strings.Repeat("x", 64)).want(t, exitUsage, "", "is no name")
	invoke(t, nil, "sql", "--inbox", "--role", strings.Repeat("x", 64)).want(t, exitUsage, "", "role")
}
