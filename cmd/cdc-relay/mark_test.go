package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// marks configures a mark for the table of a keeper, and sets it up as one that was polled.
func (k *keeper) marks(t *testing.T, setting, more string) {
	t.Helper()
	k.configure(t, fmt.Sprintf("outbox: [{table: public.outbox, mark: {%s}}]\nmaintenance: {in_run: false, wait: 60s, max_rows_per_second: 0%s}\n", setting, more))
	invoke(t, k.env, "setup", "--create-table=polling").want(t, exitOK, "", "")
}

func (k *keeper) marked(t *testing.T) int64 {
	t.Helper()
	return harness.Query[int64](t, k.db, "SELECT count(*) FROM outbox WHERE published_at IS NOT NULL")
}

func TestMark_PlansAndMarksWhatIsDelivered(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.marks(t, "column: published_at", "")
		url, stop := k.streams(t)
		k.insert(t, 30)
		k.db.Exec(t, "UPDATE outbox SET created_at = '-infinity' WHERE ctid = '(0,1)'")
		k.published(t, url, 30)
		plan := invoke(t, k.env, "mark")
		plan.want(t, exitOK, `set        "published_at" = pg_catalog.now(), where "published_at" IS NULL`, "")
		plan.want(t, exitOK, "unmarked   30 rows, the oldest of ", "")
		plan.want(t, exitOK, "index      outbox_created_at_idx", "")
		plan.want(t, exitOK, "slot       "+k.slot+", ", "")
		plan.want(t, exitOK, "because outbox_created_at_idx has the column", "")
		if n := k.marked(t); n != 0 {
			t.Fatalf("the plan marked %d rows", n)
		}
		invoke(t, k.env, "mark", "--once").want(t, exitOK, "public.outbox: marked 30 rows\n", "")
		when := queryText(t, k.db, "SELECT min(published_at)::text || max(published_at)::text FROM outbox")
		invoke(t, k.env, "mark", "--once").want(t, exitOK, "public.outbox: marked 0 rows\n", "")
		if again := queryText(t, k.db, "SELECT min(published_at)::text || max(published_at)::text FROM outbox"); k.marked(t) != 30 || again != when {
			t.Errorf("%d rows are marked; %s, and then %s", k.marked(t), when, again)
		}
		k.insert(t, 2)
		var report struct {
			Tables []struct {
				Table, Column string
				Rows          int
			}
		}
		got := invoke(t, k.env, "mark", "--once", "--json", "--table", "outbox")
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || len(report.Tables) != 1 || report.Tables[0].Rows != 2 || report.Tables[0].Column != "published_at" || got.code != exitOK {
			t.Errorf("%v: %d, %s%s", err, got.code, got.stdout, got.stderr)
		}
		stop()
	})
}

// The index that retention asks for is as good to a server as that of the rows without a mark, while
// most rows have none.
func TestMark_FindsItsIndexBesideThatOfRetention(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.marks(t, "column: published_at", "")
	k.db.Exec(t, `ALTER TABLE outbox SET (autovacuum_enabled = off); INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
		SELECT 'order', gen_random_uuid(), 'x', '{}', now() - n * interval '1s' FROM generate_series(1, 120000) n`)
	k.db.Exec(t, "CREATE INDEX every ON outbox (created_at)")
	k.db.Exec(t, "VACUUM ANALYZE outbox")
	invoke(t, k.env, "mark").want(t, exitOK, "index      outbox_created_at_idx", "")
	k.db.Exec(t, "DROP INDEX outbox_created_at_idx")
	invoke(t, k.env, "mark").want(t, exitRefused, "(no_index)", "")
}

// Rows that nobody has delivered get no mark: of a relay that does not run, of a dead letter that
// waits, of the gap of a lost slot, of a slot that somebody moved.
func TestMark_NeverMarksWhatIsNotDelivered(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.marks(t, "column: published_at", "")
		k.env = append(k.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+k.topic+"-letters", "CDC_RELAY_MAINTENANCE_WAIT=1s")
		invoke(t, k.env, "setup").want(t, exitOK, "", "")
		k.insert(t, 3)
		got := invoke(t, k.env, "mark", "--once")
		got.want(t, exitFailed, "marked 0 rows", "(reason slot_behind)")
		got.want(t, exitFailed, "", "start the relay")

		_, stop := k.streams(t)
		k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('no topic!', gen_random_uuid(), 'x', '{}')`)
		k.insert(t, 2)
		k.arrived(t, 5)
		k.env = append(k.env, "CDC_RELAY_MAINTENANCE_WAIT=20s")
		for _, n := range []string{"5 rows; 1", "0 rows; 1"} {
			invoke(t, k.env, "mark", "--once").want(t, exitOK, "marked "+n+" held back by dead letters\n", "")
		}
		invoke(t, k.env, "mark").want(t, exitOK, "held back  rows of 1 dead letter that waits\n", "")
		if left := queryText(t, k.db, "SELECT string_agg(aggregate_type, ' ') FROM outbox WHERE published_at IS NULL"); left != "no topic!" {
			t.Fatalf("without a mark: %q", left)
		}
		invoke(t, k.env, "deadletter", "redrive", "--all", "--discard", "--yes").want(t, exitOK, "", "")
		invoke(t, k.env, "mark", "--once").want(t, exitOK, "marked 0 rows; 1 held back by dead letters\n", "")
		stop()
		released(t, k.db)

		k.move(t, k.slot)
		invoke(t, k.env, "mark", "--once").want(t, exitRefused, "marked 0 rows", "(reason slot_moved)")
		k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot)
		invoke(t, k.env, "mark", "--once").want(t, exitRefused, "marked 0 rows", "(reason slot_missing)")
		k.saysWhichBackfill(t, "mark")
		k.acceptsGap(t, "created slot")
		_, stop = k.streams(t)
		invoke(t, k.env, "mark").want(t, exitRefused, "(before_slot_unknown)", "")
		invoke(t, k.env, "mark", "--once").want(t, exitRefused, "marked 0 rows", "(reason before_slot_unknown)")
		stop()
		if n := k.marked(t); n != 5 {
			t.Errorf("%d rows are marked, want 5", n)
		}
	})
}

// Somebody decided about the rows of discarded letters, the one that the brokers refuse and the ones
// of its key behind it: they are not delivered, and no fault.
func TestMark_LeavesTheRowsOfDiscardedLetters(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.env = append(k.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_PARK_KEY=true", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+k.topic+"-letters", "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=16KiB", "CDC_RELAY_KAFKA_COMPRESSION=none")
	k.marks(t, "column: published_at}, rejects: {error: last_error, attempts: retry_count", "")
	k.db.Exec(t, "ALTER TABLE outbox ADD IF NOT EXISTS last_error text, ADD IF NOT EXISTS retry_count int")
	_, stop := k.streams(t)
	defer stop()
	k.insert(t, 2)
	k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT $1, '00000000-0000-0000-0000-00000000000a', 'x', jsonb_build_object('fill', repeat('x', n)) FROM unnest(ARRAY[50000, 1]) n`, k.topic)
	k.arrived(t, 2)
	k.await(t, "both letters wait", func() bool {
		return strings.Contains(invoke(t, k.env, "deadletter", "list").stdout, "2 of 2 dead letters waiting")
	})
	invoke(t, k.env, "audit").want(t, exitOK, "waiting: 2 ", "")
	invoke(t, k.env, "deadletter", "redrive", "--discard", "--all", "--yes").want(t, exitOK, "2 of 2", "")
	invoke(t, k.env, "mark", "--once").want(t, exitOK, "marked 2 rows; 2 held back by dead letters\n", "")
	invoke(t, k.env, "audit").want(t, exitOK, "\ndiscarded: 2 (no record, and its dead letter was discarded)\n", "")
}

// The relay marks beside the stream, with the rights that `sql --for mark` prints, and deletes
// marked rows at the same time.
func TestRun_MarksBesideTheStream(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	role := postgrestest.NewRole(t, k.db, "LOGIN")
	k.marks(t, "column: published_at", "")
	defer k.db.Exec(t, `REVOKE ALL ON public.outbox FROM `+role+`; REVOKE ALL ON SCHEMA public FROM `+role+`; DO $$ BEGIN EXECUTE format('REVOKE ALL ON DATABASE %I FROM `+role+`', current_database()); END $$`)
	k.configure(t, fmt.Sprintf("outbox: [{table: public.outbox, mark: {column: published_at}, retention: {then: delete, keep: 1h, where: published_at IS NOT NULL}}]\nmaintenance: {interval: 1s, wait: 5s, url: '%s'}\n", postgrestest.WithUser(t, k.db.URL, role)))
	refused := invoke(t, k.env, "mark", "--once")
	refused.want(t, exitRefused, "marked 0 rows", `GRANT UPDATE ("published_at") ON "public"."outbox" TO "`+role+`"`)
	for _, work := range []string{"mark", "retention"} {
		sql := invoke(t, k.env, "sql", "--for", work)
		sql.want(t, exitOK, "`cdc-relay "+work+" --once`", "")
		k.db.Exec(t, sql.stdout)
	}
	checkUp(t, k.env).want(t, "table.mark", advice.OK, "delivered rows of public.outbox are marked: published_at")
	url, stop := k.streams(t)
	for n := range int64(3) {
		k.insert(t, 10)
		k.await(t, "rows are marked", func() bool { return k.marked(t) == 10*(n+1) })
	}
	k.await(t, "the job counts them", func() bool { // after their pass
		var s status.Status
		err := json.Unmarshal([]byte(invoke(t, nil, "status", "--url", url, "--json").stdout), &s)
		return err == nil && len(s.Maintenance) == 2 && s.Maintenance[1].Job == "mark" && s.Maintenance[1].Rows == 30
	})
	k.db.Exec(t, "UPDATE outbox SET created_at = created_at - interval '2h'")
	k.await(t, "marked rows are deleted", func() bool { return k.rows(t) == 0 })
	stop()
}

// A publication loses the table while the relay streams: rows that are written from then on are in
// no stream, and the slot passes them all the same. They get no mark.
func TestRun_MarksNoRowThatAChangedPublicationLeftOut(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.marks(t, "column: published_at", "")
	k.configure(t, "outbox: [{table: public.outbox, mark: {column: published_at}}]\nmaintenance: {interval: 1s, wait: 5s}\n")
	url, stop := k.streams(t)
	k.insert(t, 10)
	k.await(t, "rows are marked", func() bool { return k.marked(t) == 10 })
	publication := harness.Query[string](t, k.db, "SELECT pubname::text FROM pg_publication")
	k.db.Exec(t, "ALTER PUBLICATION "+publication+" DROP TABLE outbox")
	k.insert(t, 5)
	k.await(t, "the job says what is in the way", func() bool {
		m, _ := job(t, url)
		// waiting: the relay met it first, with a new session, and is blocked
		return (m.State == status.JobPaused || m.State == status.JobWaiting) && m.Reason == fault.ReasonTableUnpublished
	})
	if n := k.marked(t); n != 10 {
		t.Errorf("%d rows are marked, and 10 are sent", n)
	}
	stop()
}

func TestMark_RefusesWhatTheTableDoesNotBear(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.marks(t, "column: published_at", "")
	k.runs(t, 2)
	untouched := queryText(t, k.db, "SELECT string_agg(t::text, ' ') FROM outbox t")
	for _, tt := range []struct {
		setting, prepare, undo, reason, says string
	}{
		{"column: nothing", "", "", "configuration", `outbox[0].mark.column: table public.outbox has no column "nothing"`},
		{"column: published_at, value: sent", "", "", "configuration", "allowed for a timestamp: now"},
		{"column: payload", "", "", "configuration", `column "payload" of table public.outbox is jsonb`},
		{"column: seen", "ALTER TABLE outbox ADD seen boolean; ALTER TABLE outbox DROP CONSTRAINT outbox_pkey; UPDATE outbox SET seen = false; ALTER TABLE outbox ADD PRIMARY KEY (id, seen)",
			"ALTER TABLE outbox DROP CONSTRAINT outbox_pkey; ALTER TABLE outbox DROP seen; ALTER TABLE outbox ADD PRIMARY KEY (id)", "configuration", "part of its primary key"},
		{"column: published_at", "ALTER TABLE outbox REPLICA IDENTITY NOTHING; CREATE PUBLICATION other FOR TABLE outbox", "DROP PUBLICATION other; ALTER TABLE outbox REPLICA IDENTITY DEFAULT", "replica_identity", "publication other sends updates"},
		{"column: published_at", "ALTER TABLE outbox SET UNLOGGED", "", "configuration", "it is unlogged"},
	} {
		if tt.prepare != "" {
			if strings.Contains(tt.prepare, "UNLOGGED") { // a published table cannot be
				k.db.Exec(t, "DROP PUBLICATION cdc_relay")
			}
			k.db.Exec(t, tt.prepare)
		}
		k.configure(t, fmt.Sprintf("outbox: [{table: public.outbox, mark: {%s}}]\nmaintenance: {in_run: false, wait: 1s}\n", tt.setting))
		code := exitRefused
		if tt.reason == "configuration" {
			code = exitUsage
		}
		invoke(t, k.env, "mark").want(t, code, tt.says, "")
		got := invoke(t, k.env, "mark", "--once")
		if !strings.Contains(got.stderr, tt.says) || got.code == exitOK || got.code == exitFailed {
			t.Errorf("%+v: %d\n%s", tt, got.code, got.stderr)
		}
		if tt.undo != "" {
			k.db.Exec(t, tt.undo)
		}
	}
	if now := queryText(t, k.db, "SELECT string_agg(t::text, ' ') FROM outbox t"); now != untouched {
		t.Errorf("rows were %s and are %s", untouched, now)
	}
	invoke(t, k.env, "mark", "--once", "--table", "public.other").want(t, exitUsage, "", "the configuration has no mark for public.other")
}

// The rows of dead letters show why, once for each letter; a letter that is done with leaves its row
// to the mark.
func TestMark_ShowsTheDeadLetterInItsRow(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"15", "18"} {
		t.Run("postgres"+version, func(t *testing.T) {
			t.Parallel()
			k := newKeeper(t, keeping["detect_moved_slot"])
			k.db = harness.Postgres(t, version)
			k.env = append(k.env, "CDC_RELAY_POSTGRES_URL="+k.db.URL, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+k.topic+"-letters")
			k.marks(t, "column: published_at}, rejects: {error: last_error, attempts: retry_count", "")
			k.db.Exec(t, "ALTER TABLE outbox ADD IF NOT EXISTS last_error text, ADD IF NOT EXISTS retry_count int")
			_, stop := k.streams(t)
			defer stop()
			reject := func() {
				k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('no topic!', gen_random_uuid(), 'x', '{}')`)
			}
			shows := func(want string) {
				t.Helper()
				if got := queryText(t, k.db, "SELECT coalesce(string_agg(concat_ws(' ', coalesce(retry_count, 0), regexp_replace(last_error, '[0-9]+/[0-9]+', 'n/n'), CASE WHEN published_at IS NULL THEN 'unmarked' END), '; '), '') FROM outbox WHERE aggregate_type = 'no topic!'"); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
			k.insert(t, 3)
			reject()
			k.insert(t, 2)
			k.arrived(t, 5)
			invoke(t, k.env, "mark").want(t, exitOK, "rejects    dead letters are shown in last_error, retry_count\n", "")
			shows("0 unmarked")
			invoke(t, k.env, "mark", "--once").want(t, exitOK, "marked 5 rows; 1 held back by dead letters; 1 show their dead letter now\n", "")
			shows("1 route, dead letter n/n unmarked")
			invoke(t, k.env, "mark", "--once").want(t, exitOK, "marked 0 rows; 1 held back by dead letters\n", "")
			shows("1 route, dead letter n/n unmarked")
			if n := queryText(t, k.db, "SELECT count(*)::text FROM outbox WHERE last_error IS NOT NULL"); n != "1" {
				t.Errorf("%s rows show a dead letter", n)
			}
			invoke(t, k.env, "deadletter", "redrive", "--all", "--discard", "--yes").want(t, exitOK, "", "")
			invoke(t, k.env, "mark", "--once").want(t, exitOK, "marked 0 rows; 1 held back by dead letters\n", "") // it was decided about, and not delivered
			shows("1 route, dead letter n/n unmarked")
			if sql := invoke(t, k.env, "sql", "--for", "mark").stdout; !strings.Contains(sql, `UPDATE ("last_error")`) || !strings.Contains(sql, `UPDATE ("retry_count")`) {
				t.Errorf("the grants lack the columns:\n%s", sql)
			}
			k.db.Exec(t, "ALTER TABLE outbox DROP last_error")
			invoke(t, k.env, "mark", "--once").want(t, exitUsage, "", "outbox[0].rejects.error: table public.outbox has no column \"last_error\"")
		})
	}
}

// Somebody else may mark a row after the command found it without a mark. That mark stays, and the
// command counts the row.
func TestMark_LeavesWhatSomebodyElseMarked(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.marks(t, "column: published_at", "")
	k.insert(t, 5)
	marking := make(chan result, 1)
	go func() {
		marking <- invokeWithin(t.Context(), t, append(k.env[:len(k.env):len(k.env)], "CDC_RELAY_MAINTENANCE_WAIT=2m"), "mark", "--once")
	}()
	looks := map[string]bool{} // at the slot, by when they began
	k.await(t, "it has found rows, and waits for the slot", func() bool {
		looks[queryText(t, k.db, "SELECT coalesce(max(query_start)::text, '') FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'cdc-relay maintenance' AND query LIKE '%confirmed_flush_lsn%'")] = true
		return len(looks) > 5
	})
	k.db.Exec(t, "UPDATE outbox SET published_at = '2026-01-01' WHERE ctid IN ('(0,1)', '(0,2)', '(0,3)')")
	_, stop := k.streams(t)
	defer stop()
	got := <-marking
	got.want(t, exitOK, "public.outbox: marked 2 rows; 3 changed or locked by others", "")
	if n := harness.Query[int64](t, k.db, "SELECT count(*) FROM outbox WHERE published_at = '2026-01-01'"); n != 3 || k.marked(t) != 5 {
		t.Errorf("%d marks of somebody else are left of 3, and %d rows have one", n, k.marked(t))
	}
}
