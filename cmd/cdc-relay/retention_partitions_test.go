package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sandbox/objects"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// partitionsSQL is an outbox by days: one that is over, and one that now belongs to.
const partitionsSQL = `CREATE TABLE outbox (id uuid NOT NULL DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL,
	payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz, PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at);
	DO $$ BEGIN
		EXECUTE format('CREATE TABLE outbox_old PARTITION OF outbox FOR VALUES FROM (%L) TO (%L)', date_trunc('day', now(), 'UTC') - interval '3 days', date_trunc('day', now(), 'UTC') - interval '2 days');
		EXECUTE format('CREATE TABLE outbox_now PARTITION OF outbox FOR VALUES FROM (%L) TO (%L)', date_trunc('day', now(), 'UTC'), date_trunc('day', now(), 'UTC') + interval '1 day');
	END $$`

// ago is a time in the partition that is over.
const ago = "date_trunc('day', now(), 'UTC') - interval '3 days' + interval '12 hours'"

// partitioned is a keeper whose outbox has partitions, on a server of its own major.
func partitioned(t *testing.T, db *harness.Database, then, more string) *keeper {
	t.Helper()
	return partitionedIn(t, db, "", then, more)
}

// partitionedIn is partitioned with a publication of such tables; empty: setup makes one of the outbox alone.
func partitionedIn(t *testing.T, db *harness.Database, tables, then, more string) *keeper {
	t.Helper()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.db = db
	k.env = append(k.env, "CDC_RELAY_POSTGRES_URL="+db.URL)
	db.Exec(t, partitionsSQL)
	if tables != "" {
		db.Exec(t, "CREATE PUBLICATION "+k.slot+" FOR "+tables+" WITH (publish = 'insert', publish_via_partition_root)")
		k.env = append(k.env, "CDC_RELAY_POSTGRES_PUBLICATION="+k.slot)
	}
	k.configure(t, fmt.Sprintf("outbox: [{table: public.outbox, retention: {keep: 1h, then: %s, create_ahead: 2}}]\nmaintenance: {in_run: false, wait: 20s, max_rows_per_second: 0}\n%s", then, more))
	invoke(t, k.env, "setup").want(t, exitOK, "", "")
	return k
}

func (k *keeper) old(t *testing.T, kind string, n int) {
	t.Helper()
	k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
		SELECT $1, gen_random_uuid(), 'OrderPlaced', '{}', `+ago+` FROM generate_series(1, $2)`, kind, n)
}

func (k *keeper) partitions(t *testing.T) string {
	t.Helper()
	return queryText(t, k.db, "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relispartition AND relkind = 'r'")
}

// eachServer tests two majors.
func eachServer(t *testing.T, test func(t *testing.T, db *harness.Database)) {
	t.Helper()
	for _, version := range []string{"15", "18"} {
		t.Run("postgres"+version, func(t *testing.T) {
			t.Parallel()
			test(t, harness.Postgres(t, version))
		})
	}
}

func TestRetention_DropsPartitionsThatAreDelivered(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, db *harness.Database) {
		k := partitioned(t, db, "drop_partition", "")
		db.Exec(t, "CREATE ROLE reader_of_"+k.slot+"; GRANT SELECT, UPDATE (published_at) ON outbox TO reader_of_"+k.slot)
		today := time.Now().UTC()
		name := func(days int) string { return "outbox_p" + today.AddDate(0, 0, days).Format("20060102") }
		k.old(t, "order", 3)
		k.insert(t, 2)

		k.env = append(k.env, "CDC_RELAY_MAINTENANCE_WAIT=1s")
		plan := invoke(t, k.env, "retention")
		plan.want(t, exitOK, "public.outbox: drop partitions older than 1h\n", "")
		plan.want(t, exitOK, "due        1 partition: outbox_old\n", "")
		plan.want(t, exitOK, "ahead      0 partitions of 2\n", "")
		got := invoke(t, k.env, "retention", "--once") // nobody streams, and writers need partitions all the same
		got.want(t, exitFailed, "public.outbox: dropped 0 partitions; made 2\n", "(reason slot_behind)")
		if now := k.partitions(t); now != "outbox_now outbox_old "+name(1)+" "+name(2) {
			t.Fatalf("partitions %s", now)
		}
		if rights := queryText(t, db, fmt.Sprintf("SELECT concat(has_table_privilege('reader_of_%[1]s', '%[2]s', 'SELECT'), has_column_privilege('reader_of_%[1]s', '%[2]s', 'published_at', 'UPDATE'), has_table_privilege('reader_of_%[1]s', '%[2]s', 'DELETE'))", k.slot, name(2))); rights != "ttf" {
			t.Errorf("rights on a new partition: %s", rights)
		}
		if indexes := queryText(t, db, "SELECT count(*)::text FROM pg_index WHERE indrelid = '"+name(1)+"'::regclass AND indisprimary"); indexes != "1" {
			t.Errorf("a new partition has %s primary keys", indexes)
		}

		k.env = append(k.env, "CDC_RELAY_MAINTENANCE_WAIT=20s")
		checkUp(t, k.env).want(t, "table.retention", advice.OK, "drop_partition")
		url, stop := k.streams(t)
		k.published(t, url, 5)
		invoke(t, k.env, "retention", "--once").want(t, exitOK, "public.outbox: dropped 1 partition\n", "")
		invoke(t, k.env, "retention", "--once").want(t, exitOK, "public.outbox: dropped 0 partitions\n", "")
		if now := k.partitions(t); now != "outbox_now "+name(1)+" "+name(2) || k.rows(t) != 2 {
			t.Errorf("partitions %s, %d rows", now, k.rows(t))
		}
		db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('order', 'later', 'x', '{}', now() + interval '1 day')")
		k.published(t, url, 6)
		stop()
	})
}

// A role that does not own the table gets what it needs from the printed grants.
func TestRole_PrintedGrantsAreEnoughForPartitions(t *testing.T) {
	t.Parallel()
	k := partitioned(t, harness.Postgres(t, "18"), "drop_partition", "")
	role := postgrestest.NewRole(t, k.db, "LOGIN")
	owner := postgrestest.NewRole(t, k.db, "NOLOGIN")
	k.db.Exec(t, "ALTER TABLE outbox OWNER TO "+owner+"; ALTER TABLE outbox_old OWNER TO "+owner+"; ALTER TABLE outbox_now OWNER TO "+owner)
	defer k.db.Exec(t, "DROP OWNED BY "+owner+" CASCADE; DROP OWNED BY "+role)
	_, stop := k.streams(t)
	k.old(t, "order", 1)
	k.arrived(t, 1)
	k.env = append(k.env, "CDC_RELAY_MAINTENANCE_URL="+postgrestest.WithUser(t, k.db.URL, role))
	invoke(t, k.env, "retention", "--once").want(t, exitRefused, "dropped 0 partitions", "does not own it")
	sql := invoke(t, k.env, "sql", "--for", "retention")
	sql.want(t, exitOK, "GRANT", "")
	k.db.Exec(t, sql.stdout)
	k.db.Exec(t, "GRANT CREATE ON SCHEMA public TO "+owner)
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "dropped 1 partition; made 2", "")
	if of := queryText(t, k.db, "SELECT DISTINCT pg_get_userbyid(relowner)::text FROM pg_class WHERE relispartition AND relkind = 'r'"); of != owner {
		t.Errorf("partitions belong to %s, the table to %s", of, owner)
	}
	stop()
}

func TestRetention_PartitionWithAWaitingLetterStays(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, db *harness.Database) {
		k := partitioned(t, db, "detach_partition", "")
		k.env = append(k.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+k.topic+"-letters")
		invoke(t, k.env, "setup").want(t, exitOK, "", "")
		_, stop := k.streams(t)
		k.old(t, "no topic!", 1)
		k.old(t, "order", 2)
		k.arrived(t, 2)
		invoke(t, k.env, "retention", "--once").want(t, exitOK, "public.outbox: detached 0 partitions; 1 held back by dead letters", "")
		if n := k.rows(t); n != 3 {
			t.Fatalf("%d rows are left of 3", n)
		}
		invoke(t, k.env, "deadletter", "redrive", "--all", "--discard", "--yes").want(t, exitOK, "", "")
		invoke(t, k.env, "retention", "--once").want(t, exitOK, "public.outbox: detached 1 partition\n", "")
		if n := k.rows(t); n != 0 || queryText(t, db, "SELECT count(*)::text FROM outbox_old") != "3" {
			t.Errorf("%d rows are left in the table", n)
		}
		stop()
	})
}

// A writer of a back-dated row holds the root and comes for the partition that is about to go. It
// is the removal that gives up, and the writer's row is delivered.
func TestRetention_GivesWayToAWriterOfABackDatedRow(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"15", "18"} {
		db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: map[string]string{"max_prepared_transactions": "5"}})
		k := partitioned(t, db, "drop_partition", "")
		url, stop := k.streams(t)
		k.old(t, "order", 1)
		k.published(t, url, 1)
		insert := "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('order', 'late', 'x', '{}', "

		busy := func(says string) {
			t.Helper()
			invoke(t, k.env, "retention", "--once").want(t, exitFailed, "dropped 0 partitions", says)
			if n := k.rows(t); n == 0 {
				t.Fatal("the partition is gone")
			}
		}
		tx := begin(t, db)
		tx.exec(t, insert+"now())") // the root is held
		saw, late := make(chan struct{}), make(chan error, 1)
		go func() {
			k.await(t, "the partition is locked", func() bool {
				return harness.Query[bool](t, db, "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'outbox_old'::regclass AND mode = 'ShareLock' AND granted)")
			})
			close(saw)
			_, err := tx.conn.Exec(t.Context(), insert+ago+")")
			late <- err
		}()
		for came := false; !came; { // again, where the writer was too slow to see the lock
			busy("(reason partition_busy)") // it waits for the root, or saw who waits
			select {
			case <-saw:
				came = true
			default:
			}
		}
		if err := <-late; err != nil {
			t.Fatalf("the writer failed: %v", err)
		}
		busy("its writers did not end within 1s") // not committed
		tx.exec(t, "PREPARE TRANSACTION 'late'")
		busy("(reason partition_busy)")
		db.Exec(t, "COMMIT PREPARED 'late'")
		k.published(t, url, 3)
		invoke(t, k.env, "retention", "--once").want(t, exitOK, "dropped 1 partition", "")
		if n := k.rows(t); n != 1 {
			t.Errorf("%d rows are left, want the one of now", n)
		}
		stop()
	}
}

// transaction is one that a test holds open.
type transaction struct{ conn *pgx.Conn }

func begin(t *testing.T, db *harness.Database) *transaction {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	tx := &transaction{conn}
	tx.exec(t, "BEGIN")
	return tx
}

func (x *transaction) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := x.conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// Rows of the default partition go one by one, and those of a table by hash as well.
func TestRetention_DeletesRowsOfPartitionsThatDoNotGo(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, db *harness.Database) {
		k := partitioned(t, db, "drop_partition", "")
		db.Exec(t, "CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT")
		url, stop := k.streams(t)
		for _, days := range []int{200, 300} {
			db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('order', 'a', 'x', '{}', now() - $1 * interval '1 day')`, days)
		}
		db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('order', 'a', 'x', '{}', now() + interval '300 days')`)
		k.published(t, url, 3)
		invoke(t, k.env, "retention").want(t, exitOK, "default    2 rows, the oldest of ", "")
		invoke(t, k.env, "retention", "--once").want(t, exitOK, "dropped 1 partition; made 2; deleted 2 rows of the default partition\n", "")
		k.left(t, 1)
		stop()
		released(t, db)
	})
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.db.Exec(t, strings.Replace(partitionsSQL[:strings.Index(partitionsSQL, "RANGE")], "BY ", "BY HASH (id)", 1)+"; CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 1)")
		k.keepsHouse(t, "delete", "")
		invoke(t, k.env, "setup").want(t, exitOK, "", "")
		url, stop := k.streams(t)
		k.insert(t, 40)
		k.published(t, url, 40)
		k.db.Exec(t, "UPDATE outbox SET created_at = now() - interval '2h' WHERE payload->>'n' <> '7'")
		invoke(t, k.env, "retention").want(t, exitOK, "due        39 rows, the oldest of ", "")
		invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 39 rows\n", "")
		k.left(t, 1)
		stop()
	})
}

func TestRetention_RefusesPartitionsThatItMayNotRemove(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t, "18")
	k := partitioned(t, db, "drop_partition", "")
	k.old(t, "order", 1)
	before := k.partitions(t)
	refuses := func(code int, reason, says string) {
		t.Helper()
		invoke(t, k.env, "retention").want(t, code, says, "")
		invoke(t, k.env, "retention", "--once").want(t, code, "dropped 0 partitions", says)
		if now := k.partitions(t); !strings.HasPrefix(now, before) {
			t.Errorf("%s: partitions %s", reason, now)
		}
	}
	db.Exec(t, `CREATE SCHEMA partman; CREATE TABLE partman.part_config (parent_table text, retention text); INSERT INTO partman.part_config VALUES ('public.outbox', '30 days')`)
	refuses(exitUsage, "pg_partman", `UPDATE "partman"."part_config" SET retention = NULL WHERE parent_table = 'public.outbox'`)
	checkUp(t, k.env).want(t, "table.retention", advice.Fail, "pg_partman removes its partitions after 30 days")
	db.Exec(t, `UPDATE partman.part_config SET retention = NULL`)
	db.Exec(t, "ALTER PUBLICATION "+queryText(t, db, "SELECT pubname::text FROM pg_publication")+" DROP TABLE outbox")
	refuses(exitRefused, "not published", "does not publish its inserts")
	db.Exec(t, "ALTER PUBLICATION "+queryText(t, db, "SELECT pubname::text FROM pg_publication")+" ADD TABLE outbox")
	db.Exec(t, "CREATE TABLE outbox_parts PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO ('2020-02-01') PARTITION BY HASH (id)")
	refuses(exitUsage, "divided", "partition public.outbox_parts of table public.outbox is partitioned itself")
	db.Exec(t, "DROP TABLE outbox_parts")
	k.configure(t, "outbox: [{table: public.outbox, retention: {keep: 1h, then: drop_partition, by: published_at}}]\nmaintenance: {in_run: false, wait: 1s}\n")
	refuses(exitUsage, "by", `is not partitioned by "published_at" alone`)
}

// A partition that is detached or dropped while another one is worked on is the table's no more, and what
// is written to it from then on is in no stream. The others go on.
func TestRetention_LeavesAPartitionAloneThatWentMeanwhile(t *testing.T) {
	const detach = "ALTER TABLE outbox DETACH PARTITION outbox_older; "
	for how, tt := range map[string]struct {
		tables, sql string
		left        int64
	}{
		"detached":                              {"", detach, 2},
		"dropped":                               {"", "DROP TABLE outbox_older; CREATE TABLE outbox_older (LIKE outbox INCLUDING DEFAULTS); ", 1},
		"detached, with all tables published":   {"ALL TABLES", detach, 2},
		"detached, with its schema published":   {"TABLES IN SCHEMA public", detach, 2},
		"detached, and published by itself too": {"TABLE outbox", detach + "ALTER PUBLICATION SLOT ADD TABLE outbox_older; ", 2},
	} {
		t.Run(how, func(t *testing.T) {
			store, export := bucketStore(t)
			k := partitionedIn(t, harness.Postgres(t, "18"), tt.tables, "detach_partition", "")
			sql := strings.ReplaceAll(tt.sql, "SLOT", k.slot)
			k.configure(t, fmt.Sprintf("outbox: [{table: public.outbox, retention: {keep: 1h, then: export, export: %s}}]\nmaintenance: {in_run: false, wait: 20s, max_rows_per_second: 0}\n", export))
			k.db.Exec(t, daysSQL("outbox_older", 6, 4)+daysSQL("outbox_oldest", 9, 7))
			const older = `INSERT INTO outbox_older (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('order', 'a', 'OrderPlaced', '{}', date_trunc('day', now(), 'UTC') - interval '5 days')`
			_, stop := k.streams(t)
			defer stop()
			k.old(t, "order", 2)
			k.db.Exec(t, older)
			k.db.Exec(t, strings.NewReplacer("outbox_older", "outbox_oldest", "5 days", "8 days").Replace(older))
			k.arrived(t, 4)
			var once sync.Once
			store.Fail(func(r objects.Request) objects.Fault {
				if r.Op == "PutObject" && strings.Contains(r.Key, "outbox") {
					once.Do(func() { k.db.Exec(t, sql+older) })
				}
				return objects.None
			})
			invoke(t, k.env, "retention", "--once").want(t, exitOK, "exported and deleted 3 rows", "")
			if left := harness.Query[int64](t, k.db, "SELECT count(*) FROM outbox_older"); left != tt.left {
				t.Errorf("%d rows are left in the table that is none of the partitions any more, want %d", left, tt.left)
			}
			store.Fail(nil)
			invoke(t, k.env, "retention", "--once").want(t, exitOK, "exported and deleted 0 rows", "")
		})
	}
}

// daysSQL makes a partition from so many days ago until so many.
func daysSQL(name string, from, to int) string {
	return fmt.Sprintf(`DO $$ BEGIN EXECUTE format('CREATE TABLE %s PARTITION OF outbox FOR VALUES FROM (%%L) TO (%%L)', date_trunc('day', now(), 'UTC') - interval '%d days', date_trunc('day', now(), 'UTC') - interval '%d days'); END $$;`, name, from, to)
}

// A partition that somebody else drops while another one is waited for keeps none of the later ones.
func TestRetention_RemovesPartitionsBehindOneThatWentMeanwhile(t *testing.T) {
	t.Parallel()
	k := partitioned(t, harness.Postgres(t, "18"), "drop_partition", "")
	k.db.Exec(t, daysSQL("outbox_older", 6, 4)+daysSQL("outbox_oldest", 9, 7))
	_, stop := k.streams(t)
	defer stop()
	k.old(t, "order", 2)
	k.arrived(t, 2)
	writer := begin(t, k.db)
	writer.exec(t, "LOCK TABLE outbox_oldest IN ROW EXCLUSIVE MODE")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		k.await(t, "the first partition is waited for", func() bool {
			return harness.Query[bool](t, k.db, "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'outbox_oldest'::regclass AND NOT granted)")
		})
		k.db.Exec(t, "DROP TABLE outbox_older")
	}()
	invoke(t, k.env, "retention", "--once").want(t, exitFailed, "dropped 1 partition", "outbox_oldest")
	<-gone
	if now := k.partitions(t); strings.Contains(now, "outbox_old ") || !strings.Contains(now, "outbox_oldest") {
		t.Errorf("partitions %s", now)
	}
}

// No slot has the rows of an unlogged partition.
func TestRetention_KeepsUnloggedPartitions(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"drop_partition", "detach_partition"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			k := partitioned(t, harness.Postgres(t, "18"), "drop_partition", "")
			k.configure(t, fmt.Sprintf("outbox: [{table: public.outbox, retention: {keep: 1h, then: %s}}]\nmaintenance: {in_run: false, wait: 20s, max_rows_per_second: 0}\n", then))
			k.db.Exec(t, strings.Replace(daysSQL("outbox_older", 6, 4), "CREATE TABLE", "CREATE UNLOGGED TABLE", 1))
			url, stop := k.streams(t)
			defer stop()
			k.insert(t, 2)
			k.published(t, url, 2)
			k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('order', 'a', 'OrderPlaced', '{}', date_trunc('day', now(), 'UTC') - interval '5 days')`)
			got := invoke(t, k.env, "retention", "--once")
			if n := k.rows(t); n != 3 || got.code != exitUsage || !strings.Contains(got.stderr, "public.outbox_older") || !strings.Contains(got.stderr, "unlogged") {
				t.Errorf("%d of 3 rows are left, of which nobody has sent that in the unlogged partition; code %d\n%s%s", n, got.code, got.stdout, got.stderr)
			}
		})
	}
}

// Where rows go one by one, an unlogged partition is left alone and named, and those of the others go.
// Once it is logged its rows are still in no stream, and stay until somebody says that they are delivered.
func TestRetention_LeavesAnUnloggedPartitionAlone(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"delete", "archive, archive_table: public.old_events"} {
		eachServer(t, func(t *testing.T, db *harness.Database) {
			k := partitioned(t, db, "drop_partition", "")
			settings := fmt.Sprintf("outbox: [{table: public.outbox, retention: {keep: 1h, then: %s}}]\nmaintenance: {wait: 20s, max_rows_per_second: 0, ", then)
			k.configure(t, settings+"in_run: false}\n")
			db.Exec(t, "CREATE TABLE old_events (LIKE outbox INCLUDING DEFAULTS)")
			db.Exec(t, strings.Replace(daysSQL("outbox_older", 6, 4), "CREATE TABLE", "CREATE UNLOGGED TABLE", 1)+daysSQL("outbox_oldest", 9, 7))
			row := func(days string) {
				t.Helper()
				db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('order', 'a', 'OrderPlaced', '{}', date_trunc('day', now(), 'UTC') - $1::interval)`, days)
			}
			const says = "partition public.outbox_older is unlogged"
			_, stop := k.streams(t)
			row("5 days") // in no stream
			row("8 days")
			k.old(t, "order", 1)
			k.insert(t, 2)
			k.arrived(t, 4)
			invoke(t, k.env, "retention").want(t, exitOK, says, "")
			checkUp(t, k.env).want(t, "table.retention", advice.Warn, says, "ALTER TABLE \"public\".\"outbox_older\" SET LOGGED")
			invoke(t, k.env, "retention", "--once").want(t, exitRefused, " 2 rows\n", says)
			if n := k.rows(t); n != 3 {
				t.Errorf("%s: %d rows are left, want one that nobody has sent and two that are young", then, n)
			}
			stop()
			released(t, db)

			k.configure(t, settings+"interval: 1s}\n")
			url, stop := k.streams(t)
			row("8 days")
			k.await(t, "the job names it, and goes on", func() bool {
				m, _ := job(t, url)
				return k.rows(t) == 3 && m.Rows == 1 && m.State == status.JobPaused && m.Reason == "partition_unlogged" && strings.Contains(m.Message, says)
			})
			stop()
			released(t, db)

			k.configure(t, settings+"in_run: false}\n")
			_, stop = k.streams(t)
			db.Exec(t, "ALTER TABLE outbox_older SET LOGGED")
			invoke(t, k.env, "retention", "--once").want(t, exitRefused, " 0 rows\n", "public.outbox_older was written anew")
			if n := k.rows(t); n != 3 {
				t.Errorf("%s: %d rows are left of 3", then, n)
			}
			invoke(t, k.env, "setup", "--before-slot", "delivered").want(t, exitOK, "", "")
			invoke(t, k.env, "retention", "--once").want(t, exitOK, " 1 row\n", "")
			stop()
		})
	}
}

// Once it is logged, and whether or not the publication then names it too, its rows are in no stream.
func TestRetention_KeepsRowsOfAPartitionThatIsPublishedAfterItWasUnlogged(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, db *harness.Database) {
		k := partitioned(t, db, "drop_partition", "")
		k.configure(t, "outbox: [{table: public.outbox, retention: {keep: 1h, then: delete}}]\nmaintenance: {in_run: false, wait: 20s, max_rows_per_second: 0}\n")
		db.Exec(t, strings.Replace(daysSQL("outbox_older", 6, 4), "CREATE TABLE", "CREATE UNLOGGED TABLE", 1))
		_, stop := k.streams(t)
		k.insert(t, 2)
		k.arrived(t, 2)
		db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('order', 'a', 'x', '{}', date_trunc('day', now(), 'UTC') - interval '5 days')`)
		stop()
		released(t, db)
		db.Exec(t, "ALTER TABLE outbox_older SET LOGGED; ALTER PUBLICATION "+harness.Query[string](t, db, "SELECT pubname::text FROM pg_publication")+" ADD TABLE outbox_older")
		_, stop = k.streams(t)
		defer stop()
		k.insert(t, 1)
		k.arrived(t, 3)
		got := invoke(t, k.env, "retention", "--once")
		if n := k.rows(t); n != 4 || got.code != exitRefused || !strings.Contains(got.stderr, "public.outbox_older was written anew") {
			t.Errorf("%d of 4 rows are left, code %d: %s%s", n, got.code, got.stdout, got.stderr)
		}
	})
}
