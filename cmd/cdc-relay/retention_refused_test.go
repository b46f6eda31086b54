package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// housekeeper is a keeper with a relay that has delivered n old rows.
func housekeeper(t *testing.T, n int, then, more string) (k *keeper, stop func()) {
	t.Helper()
	k = newKeeper(t, keeping["detect_moved_slot"])
	k.keepsHouse(t, then, more)
	k.setUp(t, "")
	url, stop := k.streams(t)
	k.insert(t, n)
	k.published(t, url, n)
	k.age(t, "2h")
	return k, stop
}

// refusesRetention has plan and run give the reason, and no row go.
func (k *keeper) refusesRetention(t *testing.T, code int, reason, says string) {
	t.Helper()
	before := k.rows(t)
	invoke(t, k.env, "retention").want(t, code, says, "")
	got := invoke(t, k.env, "retention", "--once")
	got.want(t, code, "deleted 0 rows", says)
	if reason != "" {
		got.want(t, code, "", "(reason "+reason+")")
	}
	if n := k.rows(t); n != before {
		t.Errorf("%d rows are left of %d", n, before)
	}
}

func TestRetention_RefusesWhatTheTableDoesNotBear(t *testing.T) {
	t.Parallel()
	k, stop := housekeeper(t, 3, "delete", "")
	defer stop()
	k.db.Exec(t, "CREATE SEQUENCE counter")
	with := func(name, value string) func() {
		before := k.env
		k.env = append(k.env[:len(k.env):len(k.env)], "CDC_RELAY_OUTBOX_RETENTION_"+name+"="+value)
		return func() { k.env = before }
	}
	for _, tt := range []struct{ name, value, says string }{
		{"BY", "sent_at", `outbox[0].retention.by: table public.outbox has no column "sent_at"`},
		{"BY", "id", `column "id" of table public.outbox is uuid, and has to be a timestamp`},
		{"WHERE", "no_such = 1", `column "no_such" does not exist`},
		{"WHERE", "5", "must be type boolean"},
		{"WHERE", "event_type =", "syntax error"},
		{"WHERE", "true AND", "syntax error"},
		{"WHERE", "count(*) > 1", "aggregate functions are not allowed"},
		{"WHERE", "id IN (SELECT id FROM public.outbox FOR UPDATE)", "outbox[0].retention.where: it writes, and rows are chosen in a read-only transaction"},
		{"WHERE", "nextval('public.counter') > 0", "outbox[0].retention.where: it writes, and rows are chosen in a read-only transaction"},
	} {
		undo := with(tt.name, tt.value)
		before := k.rows(t)
		invoke(t, k.env, "retention").want(t, exitUsage, tt.says, "")
		invoke(t, k.env, "retention", "--once").want(t, exitUsage, "deleted 0 rows", tt.says)
		if n := k.rows(t); n != before {
			t.Errorf("%s %s: %d rows are left of %d", tt.name, tt.value, n, before)
		}
		undo()
	}
	if harness.Query[bool](t, k.db, "SELECT is_called FROM counter") {
		t.Error("the condition wrote")
	}

	k.db.Exec(t, "CREATE PUBLICATION other FOR TABLE outbox WITH (publish = 'insert, delete')")
	k.db.Exec(t, "ALTER TABLE outbox REPLICA IDENTITY NOTHING")
	k.refusesRetention(t, exitRefused, "replica_identity", "publication other sends deletes, and the table has no replica identity")
	k.db.Exec(t, "ALTER TABLE outbox REPLICA IDENTITY DEFAULT")
	invoke(t, k.env, "retention").want(t, exitOK, "publication other sends deletes: its readers get one", "")
	k.db.Exec(t, "DROP PUBLICATION other")

	// What a delete does beside: the plan names it.
	k.db.Exec(t, `CREATE TABLE orders (event uuid REFERENCES outbox ON DELETE CASCADE)`)
	k.db.Exec(t, `CREATE FUNCTION count_gone() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER counted AFTER DELETE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION count_gone()`)
	plan := invoke(t, k.env, "retention")
	plan.want(t, exitOK, "triggers   counted; their functions run with search_path = pg_catalog, unless they set their own\n", "")
	plan.want(t, exitOK, "references orders_event_fkey of public.orders\n", "")
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 3 rows", "")
}

// A row that goes takes no other one with it: that one may be young, and its dead letter may wait.
func TestRetention_RefusesACascadeToRowsThatAreSent(t *testing.T) {
	t.Parallel()
	k, stop := housekeeper(t, 3, "delete", "")
	defer stop()
	k.db.Exec(t, `ALTER TABLE outbox ADD caused_by uuid REFERENCES outbox ON DELETE CASCADE`)
	k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, caused_by) SELECT 'order', 'young', 'x', '{}', id FROM outbox`)
	k.refusesRetention(t, exitUsage, "", "foreign key outbox_caused_by_fkey of public.outbox has each row that goes take others with it")
	k.db.Exec(t, `CREATE TABLE orders (event uuid PRIMARY KEY REFERENCES outbox ON DELETE CASCADE);
		ALTER TABLE outbox DROP CONSTRAINT outbox_caused_by_fkey, ADD CONSTRAINT by_order FOREIGN KEY (caused_by) REFERENCES orders ON DELETE CASCADE NOT VALID`)
	k.refusesRetention(t, exitUsage, "", "foreign key by_order of public.outbox")
	k.db.Exec(t, `ALTER TABLE outbox DROP CONSTRAINT by_order`)
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 3 rows", "")
	k.left(t, 3)
}

// An archive that refers to the table loses each row that comes to it.
func TestRetention_RefusesACascadeToTheArchive(t *testing.T) {
	t.Parallel()
	k, stop := housekeeper(t, 3, "archive, archive_table: public.archive", "")
	defer stop()
	k.db.Exec(t, `CREATE TABLE archive (LIKE outbox, FOREIGN KEY (id) REFERENCES outbox ON DELETE CASCADE)`)
	invoke(t, k.env, "retention", "--once").want(t, exitUsage, "archived 0 rows", "foreign key archive_id_fkey of public.archive")
	k.db.Exec(t, `ALTER TABLE archive DROP CONSTRAINT archive_id_fkey`)
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "archived 3 rows", "")
	if n := harness.Query[int64](t, k.db, "SELECT count(*) FROM archive"); n != 3 {
		t.Errorf("the archive has %d rows", n)
	}
}

func TestRetention_NeedsAnIndexInALargeTable(t *testing.T) {
	t.Parallel()
	k, stop := housekeeper(t, 3, "delete", "")
	k.db.Exec(t, `ALTER TABLE outbox SET (autovacuum_enabled = off);
		INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'order', n::text, 'x', '{}' FROM generate_series(1, 120000) n`)
	k.refusesRetention(t, exitRefused, "no_index", `CREATE INDEX CONCURRENTLY ON "public"."outbox" ("created_at")`)
	// An index over rows that were updated in place is not used while an older transaction runs, also one of another test.
	k.db.Exec(t, "VACUUM FULL outbox")
	k.db.Exec(t, `CREATE INDEX young ON outbox (created_at) WHERE event_type = 'x'; CREATE INDEX other ON outbox (event_type, created_at)`)
	k.refusesRetention(t, exitRefused, "no_index", "or set outbox[0].retention.scan: blocks")
	without := k.env
	k.env = append(k.env[:len(k.env):len(k.env)], "CDC_RELAY_OUTBOX_RETENTION_SCAN=blocks", "CDC_RELAY_OUTBOX_RETENTION_WHERE=aggregate_id = '7'")
	k.db.Exec(t, "UPDATE outbox SET created_at = created_at - interval '2h' WHERE aggregate_id = '7'")
	invoke(t, k.env, "retention").want(t, exitOK, "outbox[0].retention.scan: blocks: each run reads the whole table", "")
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 1 row", "")
	k.env = without
	k.db.Exec(t, `CREATE INDEX CONCURRENTLY old ON "public"."outbox" ("created_at")`)
	invoke(t, k.env, "retention").want(t, exitOK, "index      old\n", "")
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 3 rows", "")
	// A partial index serves a policy that names its rows.
	k.db.Exec(t, "DROP INDEX old; UPDATE outbox SET created_at = created_at - interval '2h' WHERE aggregate_id IN ('1', '2')")
	k.env = append(k.env, "CDC_RELAY_OUTBOX_RETENTION_WHERE=event_type = 'x' -- of an importer")
	invoke(t, k.env, "retention").want(t, exitOK, "index      young\n", "")
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 2 rows", "")
	stop()
}

func TestRetention_ArchivesInOneTransaction(t *testing.T) {
	t.Parallel()
	k, stop := housekeeper(t, 5, "archive, archive_table: audit.old", "")
	defer stop()
	refuses := func(says string) {
		t.Helper()
		before := k.rows(t)
		invoke(t, k.env, "retention").want(t, exitRefused, says, "")
		invoke(t, k.env, "retention", "--once").want(t, exitRefused, "archived 0 rows", says)
		if n := k.rows(t); n != before {
			t.Errorf("%d rows are left of %d", n, before)
		}
	}
	refuses(`archive table audit.old: it does not exist`)
	k.db.Exec(t, "CREATE SCHEMA audit; CREATE TABLE audit.old (id uuid, created_at text)")
	refuses(`no column "aggregate_type"`)
	refuses(`column "created_at" as text, and the table as timestamp with time zone`)
	k.db.Exec(t, "DROP TABLE audit.old; CREATE UNLOGGED TABLE audit.old (LIKE public.outbox INCLUDING DEFAULTS)")
	refuses("it is unlogged: a crash of the server empties it")
	k.db.Exec(t, "DROP TABLE audit.old; CREATE TABLE audit.old (LIKE public.outbox INCLUDING DEFAULTS) PARTITION BY RANGE (created_at); CREATE UNLOGGED TABLE audit.rest PARTITION OF audit.old DEFAULT")
	refuses("partition audit.rest of it is unlogged or a foreign table")
	k.db.Exec(t, "DROP TABLE audit.old; CREATE TABLE audit.old () INHERITS (public.outbox)")
	refuses("one of the two inherits from the other")
	k.db.Exec(t, "DROP TABLE audit.old; CREATE TABLE audit.old (LIKE public.outbox INCLUDING DEFAULTS, moved timestamptz DEFAULT now())")
	k.db.Exec(t, "ALTER PUBLICATION cdc_relay ADD TABLE audit.old")
	refuses("publication cdc_relay has it, or a partition of it: its rows would be sent again")
	k.db.Exec(t, "ALTER PUBLICATION cdc_relay DROP TABLE audit.old")

	// An archive that leaves rows out without an error.
	k.db.Exec(t, `CREATE FUNCTION audit.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER sieve BEFORE INSERT ON audit.old FOR EACH ROW EXECUTE FUNCTION audit.nothing()`)
	got := invoke(t, k.env, "retention", "--once")
	got.want(t, exitUsage, "archived 0 rows", "the archive did not take every row")
	if n := k.rows(t); n != 5 {
		t.Fatalf("%d rows are left of 5", n)
	}
	k.db.Exec(t, "DROP TRIGGER sieve ON audit.old")
	before := k.db
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "archived 5 rows\n", "")
	if n, moved := k.rows(t), queryText(t, before, "SELECT count(*) || ' ' || count(moved) || ' ' || count(payload) FROM audit.old"); n != 0 || moved != "5 5 5" {
		t.Errorf("%d rows are left; the archive has %s", n, moved)
	}
	if n := len(k.brokers.Read(t, "order-events")); n != 5 {
		t.Errorf("%d records, want 5", n)
	}
}

// The printed grants are enough, and each is needed; all but one that has another way.
func TestRetention_PrintedGrantsAreEnough(t *testing.T) {
	t.Parallel()
	k, stop := housekeeper(t, 3, "archive, archive_table: audit.old", "")
	defer stop()
	role := postgrestest.NewRole(t, k.db, "LOGIN")
	k.db.Exec(t, "CREATE SCHEMA audit; CREATE TABLE audit.old (LIKE public.outbox INCLUDING DEFAULTS); REVOKE ALL ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO PUBLIC")
	k.env = append(k.env, "CDC_RELAY_MAINTENANCE_URL="+postgrestest.WithUser(t, k.db.URL, role))
	once := func() result { return invoke(t, k.env, "retention", "--once") }
	once().want(t, exitRefused, "archived 0 rows", "(reason permission)")
	printed := invoke(t, k.env, "sql", "--for", "retention")
	printed.want(t, exitOK, `GRANT UPDATE ("created_at") ON TABLE "public"."outbox" TO "`+role+`";`, "")
	k.db.Exec(t, printed.stdout)
	defer k.db.Exec(t, `REVOKE ALL ON public.outbox, audit.old FROM `+role+`; REVOKE ALL ON SCHEMA public, audit FROM `+role+`; DO $$ BEGIN EXECUTE format('REVOKE ALL ON DATABASE %I FROM `+role+`', current_database()); END $$`)
	for _, right := range []string{"SELECT ON public.outbox", "DELETE ON public.outbox", "INSERT ON audit.old"} {
		k.db.Exec(t, "REVOKE "+right+" FROM "+role)
		plan := invoke(t, k.env, "retention")
		grant := "GRANT " + strings.NewReplacer("public.outbox", `"public"."outbox"`, "audit.old", `"audit"."old"`).Replace(right) + ` TO "` + role + `"`
		plan.want(t, exitRefused, grant, "")
		once().want(t, exitRefused, "archived 0 rows", grant)
		k.db.Exec(t, grant)
	}
	once().want(t, exitOK, "archived 3 rows", "")

	// Without UPDATE rows that somebody has locked are waited for, and left at last.
	k.db.Exec(t, "REVOKE UPDATE (created_at) ON public.outbox FROM "+role)
	k.insert(t, 3)
	k.age(t, "2h")
	invoke(t, k.env, "retention").want(t, exitOK, "may not leave locked rows out", "")
	locker := k.db.Connect(t)
	if _, err := locker.Exec(context.Background(), "BEGIN; SELECT FROM outbox LIMIT 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	once().want(t, exitOK, "archived 2 rows; 1 changed or locked by others", "")
	if _, err := locker.Exec(context.Background(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	once().want(t, exitOK, "archived 1 row\n", "")
}

// arrived waits for so many records in all.
func (k *keeper) arrived(t *testing.T, n int) {
	t.Helper()
	k.await(t, fmt.Sprintf("%d records", n), func() bool { return len(k.brokers.Read(t, "order-events")) == n })
}

// A dead letter may lack a part that only its row has, so the row stays until the letter is
// sent or discarded.
func TestRetention_ADeadLetterHoldsItsRow(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.keepsHouse(t, "delete", "")
		k.env = append(k.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+k.topic+"-letters")
		k.setUp(t, "")
		_, stop := k.streams(t)
		k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('no topic!', '1', 'x', '{}')`)
		k.insert(t, 20)
		k.arrived(t, 20)
		k.age(t, "2h")
		invoke(t, k.env, "retention").want(t, exitOK, "held back  rows of 1 dead letter that waits\n", "")
		for range 2 {
			invoke(t, k.env, "retention", "--once").want(t, exitOK, "; 1 held back by dead letters\n", "")
			if left := queryText(t, k.db, "SELECT string_agg(aggregate_type, ' ') FROM outbox"); left != "no topic!" {
				t.Fatalf("left: %q", left)
			}
		}
		// Where no letter names its row, all rows are held.
		k.insert(t, 5)
		k.arrived(t, 25)
		k.age(t, "2h")
		named := k.env
		k.env = append(k.env[:len(k.env):len(k.env)], "CDC_RELAY_OUTBOX_COLUMNS_ID=payload#/n")
		invoke(t, k.env, "retention").want(t, exitOK, "a dead letter waits that may be of any row", "")
		invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 0 rows; 6 held back by dead letters\n", "")
		k.env = named
		invoke(t, k.env, "deadletter", "redrive", "--all", "--discard", "--yes").want(t, exitOK, "", "")
		invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 6 rows\n", "")
		stop()
		// With dead letters configured, a topic that is gone is no topic without letters.
		k.brokers.Admin(t).DeleteTopics(t.Context(), k.topic+"-letters")
		k.insert(t, 1)
		k.age(t, "2h")
		invoke(t, k.env, "retention", "--once").want(t, exitRefused, "deleted 0 rows", "(reason dead_letters_unread)")
	})
}

// Rows that the publication leaves out are never sent.
func TestRetention_RefusesRowsThatAreNotPublished(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.db = harness.Postgres(t, "18") // row filters came with 15
	k.env = append(k.env, "CDC_RELAY_POSTGRES_URL="+k.db.URL)
	k.keepsHouse(t, "delete", "")
	k.setUp(t, "")
	k.runs(t, 3)
	k.age(t, "2h")
	k.db.Exec(t, "ALTER PUBLICATION cdc_relay SET TABLE outbox WHERE (event_type = 'x')")
	k.refusesRetention(t, exitRefused, "table_unpublished", "publication cdc_relay has a row filter on it")
	k.db.Exec(t, "CREATE TABLE other (n int); ALTER PUBLICATION cdc_relay SET TABLE other")
	k.refusesRetention(t, exitRefused, "table_unpublished", "publication cdc_relay does not publish its inserts")
	k.db.Exec(t, "DROP PUBLICATION cdc_relay")
	k.refusesRetention(t, exitRefused, "table_unpublished", "publication cdc_relay does not publish its inserts")
}

// Before setup there is no publication: one check says so, and what to do.
func TestCheck_OfRetentionBeforeSetup(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.db.Exec(t, `CREATE TABLE outbox (id uuid NOT NULL, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL,
		created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at); CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT`)
	k.configure(t, "outbox: [{table: public.outbox, retention: {keep: 1h, then: delete}, mark: {column: event_type, value: sent}}]\nmaintenance: {in_run: false}\n")
	got := invoke(t, k.env, "check")
	got.want(t, exitRefused, "the publication does not exist", "")
	if strings.Contains(got.stdout, "table_unpublished") {
		t.Errorf("the missing publication is reported once more:\n%s", got.stdout)
	}
}
