package main

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// loadedSQL fills loaded with rows of some days ago, and attachSQL makes it the partition of these days.
const (
	loadedSQL = `INSERT INTO loaded (aggregate_type, aggregate_id, event_type, payload, created_at) SELECT 'order', 'a', 'x', '{}', date_trunc('day', now(), 'UTC') - interval '5 days' FROM generate_series(1, 4);`
	attachSQL = `DO $$ BEGIN EXECUTE format('ALTER TABLE outbox ATTACH PARTITION loaded FOR VALUES FROM (%L) TO (%L)', date_trunc('day', now(), 'UTC') - interval '6 days', date_trunc('day', now(), 'UTC') - interval '4 days'); END $$;`
)

// Rows that were in a table before it became a partition are in no stream.
func TestRetention_KeepsRowsOfATableThatWasAttached(t *testing.T) {
	t.Parallel()
	const create = `CREATE TABLE loaded (LIKE outbox INCLUDING DEFAULTS);`
	for _, then := range []string{"delete", "drop_partition, create_ahead: 2"} {
		for how, statements := range map[string][]string{
			"in one transaction": {create + loadedSQL + attachSQL},
			"in several":         {create, loadedSQL, attachSQL},
			"and updated since":  {create, loadedSQL, attachSQL, "UPDATE loaded SET event_type = 'y'"},
		} {
			t.Run(then+" "+how, func(t *testing.T) {
				t.Parallel()
				db := harness.Postgres(t, "18")
				k, url, stop := streamsPartitions(t, db, then)
				k.insert(t, 2)
				k.published(t, url, 2)
				for _, sql := range statements {
					db.Exec(t, sql)
				}
				text := invoke(t, k.env, "retention", "--once")
				if n := k.rows(t); n != 6 || text.code != exitRefused {
					t.Errorf("%d of 6 rows are left, and the 4 of the attached table were sent by nobody: code %d\n%s%s", n, text.code, text.stdout, text.stderr)
				}
				stop()
				invoke(t, k.env, "setup", "--before-slot", "delivered").want(t, exitOK, "", "")
				_, stop = k.streams(t)
				text = invoke(t, k.env, "retention", "--once")
				stop()
				if n := k.rows(t); n != 2 {
					t.Errorf("%d of 2 rows are left after somebody said that the others are delivered: code %d\n%s%s", n, text.code, text.stdout, text.stderr)
				}
			})
		}
	}
}

// A partition that is empty when it is attached holds nothing back.
func TestRetention_TakesRowsOfPartitionsThatWereMadeEmpty(t *testing.T) {
	t.Parallel()
	for how, sql := range map[string]string{
		"attached":        `CREATE TABLE loaded (LIKE outbox INCLUDING DEFAULTS);` + attachSQL,
		"made and filled": `DO $$ BEGIN EXECUTE format('CREATE TABLE loaded PARTITION OF outbox FOR VALUES FROM (%L) TO (%L)', date_trunc('day', now(), 'UTC') - interval '6 days', date_trunc('day', now(), 'UTC') - interval '4 days'); END $$;`,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			db := harness.Postgres(t, "18")
			k, url, stop := streamsPartitions(t, db, "delete")
			db.Exec(t, sql+loadedSQL)
			k.published(t, url, 4)
			text := invoke(t, k.env, "retention", "--once")
			stop()
			if n := k.rows(t); n != 0 || text.code != exitOK {
				t.Errorf("%d delivered rows are left, code %d\n%s%s", n, text.code, text.stdout, text.stderr)
			}
		})
	}
}

func streamsPartitions(t *testing.T, db *harness.Database, then string) (k *keeper, url string, stop func()) {
	t.Helper()
	k = newKeeper(t, keeping["detect_moved_slot"])
	k.db = db
	k.env = append(k.env, "CDC_RELAY_POSTGRES_URL="+db.URL)
	db.Exec(t, partitionsSQL)
	k.configure(t, "outbox: [{table: public.outbox, retention: {keep: 1h, then: "+then+"}}]\nmaintenance: {in_run: false, wait: 20s, max_rows_per_second: 0}\n")
	invoke(t, k.env, "setup").want(t, exitOK, "", "")
	url, stop = k.streams(t)
	return k, url, stop
}

// Rows that were written while the table was unlogged are in no stream.
func TestRetention_KeepsRowsFromWhileTheTableWasUnlogged(t *testing.T) {
	t.Parallel()
	const insert = `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) SELECT 'order', 'a', 'x', '{}', now() - interval '2h' FROM generate_series(1, 4)`
	for how, statements := range map[string][]string{
		"in one transaction": {`BEGIN; ALTER TABLE outbox SET UNLOGGED; ` + insert + `; ALTER TABLE outbox SET LOGGED; COMMIT`},
		"in several":         {`ALTER TABLE outbox SET UNLOGGED`, insert, `ALTER TABLE outbox SET LOGGED`, `VACUUM outbox`},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			db := harness.Postgres(t, "18")
			k := newKeeper(t, keeping["detect_moved_slot"])
			k.db = db
			k.env = append(k.env, "CDC_RELAY_POSTGRES_URL="+db.URL)
			k.keepsHouse(t, "delete", "")
			db.Exec(t, `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
				CREATE PUBLICATION `+k.slot+` FOR TABLES IN SCHEMA public WITH (publish = 'insert')`)
			k.env = append(k.env, "CDC_RELAY_POSTGRES_PUBLICATION="+k.slot)
			invoke(t, k.env, "setup").want(t, exitOK, "", "")
			url, stop := k.streams(t)
			k.insert(t, 2)
			k.published(t, url, 2)
			for _, sql := range statements {
				db.Exec(t, sql)
			}
			text := invoke(t, k.env, "retention", "--once")
			stop()
			if n := k.rows(t); n != 6 || text.code != exitRefused {
				t.Errorf("%d of 6 rows are left, code %d\n%s%s", n, text.code, text.stdout, text.stderr)
			}
		})
	}
}
