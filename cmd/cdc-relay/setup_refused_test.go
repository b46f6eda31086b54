package main

import "testing"

// A slot of a relay that does not start holds back WAL until the disk is full.
func TestSetup_MakesNothingThatRunWouldRefuse(t *testing.T) {
	db, env := shop(t, `CREATE TABLE outbox (id uuid PRIMARY KEY, a text, b text)`, "CDC_RELAY_POSTGRES_SLOT=refused", "CDC_RELAY_POSTGRES_PUBLICATION=refused")
	nothing := func(after string) {
		t.Helper()
		for _, sql := range []string{
			`SELECT 1 / (count(*) - 1) * 0 + 1 FROM pg_publication WHERE pubname = 'refused'`,
			`SELECT 1 / (count(*) - 1) * 0 + 1 FROM pg_replication_slots WHERE slot_name = 'refused'`,
			`SELECT 1 / (count(*) - 1) * 0 + 1 FROM pg_class WHERE relname = 'made'`,
		} {
			db.Exec(t, sql) // divides by zero where one is there
		}
		if t.Failed() {
			t.Fatalf("made by %s", after)
		}
	}
	run := invoke(t, env, "explain")
	run.want(t, exitUsage, "", "auto does not recognise table")
	for _, args := range [][]string{{"setup"}, {"setup", "--dry-run"}} {
		invoke(t, env, args...).want(t, exitUsage, "", "auto does not recognise table")
		nothing(args[0])
	}
	invoke(t, env, "setup", "--set", "outbox[0].columns.payload=c", "--set", "outbox[0].topic=x").want(t, exitUsage, "", `"c"`)
	nothing("setup with a column that is not there")
	invoke(t, env, "setup", "--create-table=outbox", "--set", "outbox.table=made", "--set", "outbox.columns.payload=c").want(t, exitUsage, "", `"c"`)
	nothing("setup --create-table")
}
