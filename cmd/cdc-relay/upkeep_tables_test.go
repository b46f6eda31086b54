package main

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Names that need quotes, a column that was dropped, a child that inherits, and ages that are none:
// retention and mark act on the rows of the table itself, and on those of an age.
func TestUpkeep_TablesOfEveryShape(t *testing.T) {
	t.Parallel()
	const table = `"Out Box"."Box ""1"`
	for name, c := range map[string]struct {
		then  string
		never string // how many rows are never due
		left  string // of the table itself
	}{
		"deleted":  {"delete", "2 rows", "future infinity never young"},
		"exported": {"export, export: {to: %q}", "3 rows", "always future infinity never young"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeeper(t, keeping["detect_moved_slot"])
			k.db.Exec(t, `CREATE SCHEMA "Out Box"; CREATE TABLE `+table+` (gone int, "Id It" text PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL,
				payload jsonb NOT NULL, "Created At" timestamptz, published_at timestamptz); ALTER TABLE `+table+` DROP COLUMN gone; CREATE TABLE "Out Box".child () INHERITS (`+table+`)`)
			then := c.then
			if name == "exported" {
				then = fmt.Sprintf(then, t.TempDir())
			}
			k.configure(t, fmt.Sprintf(`outbox: [{table: '%s', columns: {id: "Id It"}, retention: {keep: 1h, by: "Created At", then: %s}, mark: {column: published_at}}]
maintenance: {in_run: false, wait: 20s, max_rows_per_second: 0}
`, table, then))
			invoke(t, k.env, "setup").want(t, exitOK, "", "")
			for _, job := range []string{"retention", "mark"} { // no row is there yet
				invoke(t, k.env, job, "--once").want(t, exitOK, " 0 rows", "")
			}
			url, stop := k.streams(t)
			defer stop()
			k.db.Exec(t, `INSERT INTO `+table+` SELECT id, 'order', id, 'Placed', '{}', at FROM (VALUES ('old', now() - interval '3h'), ('young', now() - interval '10min'), ('never', NULL),
				('future', now() + interval '1h'), ('infinity', 'infinity'), ('always', '-infinity')) v (id, at)`)
			k.db.Exec(t, `INSERT INTO "Out Box".child SELECT 'child', 'order', 'child', 'Placed', '{}', now() - interval '3h'`)
			k.published(t, url, 6)
			rows := func(of string) string {
				return queryText(t, k.db, `SELECT coalesce(string_agg("Id It", ' ' ORDER BY "Id It"), '') FROM `+of)
			}
			invoke(t, k.env, "retention").want(t, exitOK, "never due  "+c.never+" without a time, or with an infinite one", "")
			invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted", "")
			if left := rows("ONLY " + table); left != c.left {
				t.Errorf("%q are left, want %q", left, c.left)
			}
			invoke(t, k.env, "mark", "--once").want(t, exitOK, "marked", "")
			if left := rows(table + " WHERE published_at IS NULL"); left != "child" {
				t.Errorf("%q have no mark", left)
			}
			if n := harness.Query[int64](t, k.db, `SELECT count(*) FROM "Out Box".child`); n != 1 {
				t.Errorf("%d rows of the child are left", n)
			}
		})
	}
}

// A view in the table's place, even one that takes an UPDATE and a DELETE: no slot has its rows, and
// nothing happens to those of the table below it.
func TestUpkeep_RefusesAView(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.marks(t, "column: published_at", "")
	k.runs(t, 3)
	k.age(t, "3h")
	k.db.Exec(t, "CREATE VIEW seen AS SELECT * FROM outbox; CREATE MATERIALIZED VIEW kept AS SELECT * FROM outbox")
	untouched := queryText(t, k.db, "SELECT string_agg(t::text, ' ' ORDER BY id) FROM outbox t")
	for _, view := range []string{"public.seen", "public.kept"} {
		k.configure(t, fmt.Sprintf("outbox: [{table: %s, preset: outbox, retention: {keep: 1h, then: delete}, mark: {column: published_at}}]\nmaintenance: {in_run: false, wait: 1s}\n", view))
		for _, job := range []string{"mark", "retention"} {
			says := "table " + view + ": it is a view, or no table"
			invoke(t, k.env, job).want(t, exitUsage, says, "")
			invoke(t, k.env, job, "--once").want(t, exitUsage, " 0 rows", says)
		}
	}
	if now := queryText(t, k.db, "SELECT string_agg(t::text, ' ' ORDER BY id) FROM outbox t"); now != untouched {
		t.Errorf("rows were %s and are %s", untouched, now)
	}
}
