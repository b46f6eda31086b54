package maintenance

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const eventsSQL = `CREATE TABLE events (id text, n int, published_at timestamptz); ALTER TABLE events SET (autovacuum_enabled = off);
	CREATE PUBLICATION cdc_relay FOR TABLE events WITH (publish = 'insert')`

var events = wal.Table{Schema: "public", Name: "events"}

func work() Work { return Work{Table: events, ID: "id", Limit: 1000} }

func opened(t *testing.T, db *harness.Database, w Work) *Session {
	t.Helper()
	s, err := Open(t.Context(), postgres.Config{URL: db.URL}, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func name(t *testing.T, s *Session) []proof.Row {
	t.Helper()
	rows, _, err := s.Name(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func ids(rows []proof.Row) string {
	var list []string
	for _, r := range rows {
		if r.NoID {
			r.ID = "NULL"
		}
		list = append(list, r.ID)
	}
	return strings.Join(list, " ")
}

func act(t *testing.T, s *Session, rows []proof.Row) int {
	t.Helper()
	n, err := s.Act(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func left(t *testing.T, db *harness.Database) string {
	t.Helper()
	return harness.Query[string](t, db, `SELECT coalesce(string_agg(id || n, ' ' ORDER BY id), '') FROM events`)
}

// A version is named, and no other version of its row, of another row at its place, or of a
// row that is locked, whether rows are locked beforehand or not.
func TestSession_ActsOnTheVersionsThatItNamed(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL)
		for _, locked := range []time.Time{{}, time.Now().Add(time.Hour)} {
			db.Exec(t, `TRUNCATE events; INSERT INTO events SELECT chr(97 + i), 0 FROM generate_series(0, 6) i`)
			actsOnWhatItNamed(t, db, locked)
		}
	})
}

func actsOnWhatItNamed(t *testing.T, db *harness.Database, locked time.Time) {
	t.Helper()
	s := opened(t, db, work())
	defer s.Close()
	rows := name(t, s)
	if ids(rows) != "a b c d e f g" {
		t.Fatalf("named %q", ids(rows))
	}
	db.Exec(t, `UPDATE events SET n = 1 WHERE id = 'b'`)
	db.Exec(t, `DELETE FROM events WHERE id IN ('c', 'd'); INSERT INTO events VALUES ('c', 2)`)
	db.Exec(t, `VACUUM events`)                                // frees the places of c and d
	db.Exec(t, `INSERT INTO events VALUES ('x', 3), ('y', 3)`) // takes them
	taken := harness.Query[int64](t, db, `SELECT count(*) FROM events WHERE id IN ('x', 'y') AND ctid IN ('(0,3)', '(0,4)')`)
	if taken == 0 {
		t.Error("the places were not used again, so the test shows less than it should")
	}
	locker := db.Connect(t)
	if _, err := locker.Exec(t.Context(), `BEGIN; SELECT FROM events WHERE id = 'f' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	s.locked = locked
	if n := act(t, s, rows); n != 3 { // a, e, g
		t.Errorf("acted on %d rows", n)
	}
	if time.Since(s.locked) > lockedFor {
		t.Error("it does not remember that a row was locked")
	}
	if _, err := locker.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	if got := left(t, db); got != "b1 c2 f0 x3 y3" {
		t.Errorf("left: %s", got)
	}
	// The one that was locked is named and acted on by the next pass.
	if n := act(t, s, rows); n != 1 || left(t, db) != "b1 c2 x3 y3" {
		t.Errorf("acted on %d rows, left: %s", n, left(t, db))
	}
}

// The lock of a table is in the way as well as that of a row, and so is the one that a busy server takes to make
// a table larger. Where all rows were free, they are not locked beforehand from then on.
func TestSession_TakesNoOtherLockForThatOfARow(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL)
	db.Exec(t, `INSERT INTO events SELECT chr(97 + i), 0 FROM generate_series(0, 6) i`)
	s := opened(t, db, work())
	rows := name(t, s)
	locker := db.Connect(t)
	if _, err := locker.Exec(t.Context(), `BEGIN; LOCK TABLE events IN SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		acted int
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		n, err := s.Act(t.Context(), rows)
		done <- outcome{n, err}
	}()
	for !harness.Query[bool](t, db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'WITH proven%')`) {
		select {
		case got := <-done:
			t.Fatalf("it did not wait, and acted on %d rows: %v", got.acted, got.err)
		default:
		}
	}
	if _, err := locker.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.err != nil || got.acted != 7 || !s.locked.IsZero() {
		t.Errorf("acted on %d rows: %v; it remembers that one was locked: %v", got.acted, got.err, !s.locked.IsZero())
	}
}

func TestSession_GoesThroughTheTableAndBeginsAgain(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL)
	db.Exec(t, `INSERT INTO events SELECT nullif(chr(97 + i), 'c'), i FROM generate_series(0, 4) i`)
	w := work()
	w.Limit, w.Where = 2, `n <> 1 -- a comment`
	s := opened(t, db, w)
	for _, want := range []string{"a NULL", "d e", "", "a NULL"} {
		if got := ids(name(t, s)); got != want {
			t.Errorf("named %q, want %q", got, want)
		}
	}
}

func TestSession_SetsColumnsOfTheRowsThatStillMeetTheCondition(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL)
	db.Exec(t, `INSERT INTO events VALUES ('a', 0), ('b', 0)`)
	w := work()
	w.Where, w.Set = "published_at IS NULL", "published_at = now()"
	s := opened(t, db, w)
	rows := name(t, s)
	db.Exec(t, `UPDATE events SET published_at = '2020-01-01' WHERE id = 'b'`)
	if n := act(t, s, rows); n != 1 {
		t.Errorf("marked %d rows", n)
	}
	if got := harness.Query[string](t, db, `SELECT string_agg(id || (published_at > '2021-01-01'), ' ' ORDER BY id) FROM events`); got != "atrue bfalse" {
		t.Errorf("marked: %s", got)
	}
	if got := ids(name(t, s)); got != "" {
		t.Errorf("named again: %q", got)
	}
}

// The SQL of a condition reads: nobody writes or locks by it.
func TestSession_NamesInAReadOnlyTransaction(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL)
	db.Exec(t, `INSERT INTO events VALUES ('a', 0); CREATE FUNCTION wipe() RETURNS bool LANGUAGE plpgsql AS 'BEGIN DELETE FROM public.events; RETURN true; END'`)
	w := work()
	w.Where = "public.wipe()"
	s := opened(t, db, w)
	if rows, _, err := s.Name(t.Context()); err == nil || !strings.Contains(err.Error(), "read-only transaction") {
		t.Errorf("named %q, %v", ids(rows), err)
	}
	if got := left(t, db); got != "a0" {
		t.Errorf("left: %q", got)
	}
	if _, err := s.Fence(t.Context()); err != nil { // the session goes on
		t.Error(err)
	}
}

// A table that takes the name of the one that was opened has none of the rows.
func TestSession_SparesATableThatTookTheName(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL)
	db.Exec(t, `CREATE TABLE other (LIKE events); BEGIN; INSERT INTO events VALUES ('a', 0); INSERT INTO other VALUES ('z', 9); COMMIT`)
	s := opened(t, db, work())
	rows := name(t, s)
	db.Exec(t, `ALTER TABLE events RENAME TO former; ALTER TABLE other RENAME TO events`)
	if n := act(t, s, rows); n != 0 || left(t, db) != "z9" {
		t.Errorf("acted on %d rows, left: %q", n, left(t, db))
	}
}

func TestSession_HasATableToItself(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL)
	first := opened(t, db, work())
	_, err := Open(t.Context(), postgres.Config{URL: db.URL}, work())
	postgrestest.WantError(t, err, fault.KindBusy, fault.ReasonMaintenanceInUse, "another session holds the lock: pid ", applicationName, "a relay that runs does this work itself (maintenance.in_run)")
	first.Close()
	for { // the server ends a session a moment after its client
		second, err := Open(t.Context(), postgres.Config{URL: db.URL}, work())
		if err == nil {
			second.Close()
			return
		}
		if postgres.KindOf(err) != fault.KindBusy {
			t.Fatal(err)
		}
	}
}

func TestSession_RefusesWhatHasNoRowsOfAStream(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE root (id text) PARTITION BY LIST (id); CREATE UNLOGGED TABLE quick (id text); CREATE VIEW seen AS SELECT 1 AS id`)
	for table, reason := range map[string]string{"root": fault.ReasonConfiguration, "quick": fault.ReasonConfiguration, "seen": fault.ReasonConfiguration, "none": fault.ReasonTableMissing} {
		w := work()
		w.Table.Name = table
		_, err := Open(t.Context(), postgres.Config{URL: db.URL}, w)
		postgrestest.WantError(t, err, fault.KindRefused, reason, "public."+table)
	}
	w := work()
	w.Limit = 0
	_, err := Open(t.Context(), postgres.Config{URL: db.URL}, w)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonConfiguration, "batch")
}

func TestSession_ShowsTheSlotsThatThereAre(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL)
		slot := harness.Unique(t, "slot")
		db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
		s := opened(t, db, work())
		slots, err := s.Slots(t.Context(), []string{slot, "no_such_slot"})
		if err != nil || len(slots) != 1 || slots[0] != (proof.Slot{Name: slot, Confirmed: postgrestest.ConfirmedBy(t, db, slot)}) {
			t.Errorf("%+v, %v", slots, err)
		}
		if slots, err := s.Slots(t.Context(), []string{"no_such_slot"}); err != nil || len(slots) != 0 {
			t.Errorf("%+v, %v", slots, err)
		}
	})
}

// What a server does in another session than the first is not of one connection.
func TestSession_NoticesAPooler(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL)
	db.Exec(t, `INSERT INTO events VALUES ('a', 0)`)
	s := opened(t, db, work())
	rows := name(t, s)
	s.pid++
	_, err := s.Slots(t.Context(), []string{"any"})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonConfiguration, "pooler")
	if n := act(t, s, rows); n != 0 || left(t, db) != "a0" {
		t.Errorf("acted on %d rows", n)
	}
}

func TestSession_KnowsWhereItIs(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL)
	s := opened(t, db, work())
	system := harness.Query[string](t, db, `SELECT system_identifier::text FROM pg_control_system()`)
	oid := harness.Query[int64](t, db, `SELECT 'events'::regclass::oid::bigint`)
	if want := (wal.Lineage{SystemID: system, Timeline: 1}); s.Lineage() != want || int64(s.OID()) != oid {
		t.Errorf("%+v, table %d; want %+v, %d", s.Lineage(), s.OID(), want, oid)
	}
}

// A policy would leave rows out without a word.
func TestSession_IsNotCutShortByAPolicy(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL)
	role := postgrestest.NewRole(t, db, "LOGIN")
	db.Exec(t, `ALTER TABLE events ENABLE ROW LEVEL SECURITY; GRANT SELECT, DELETE, UPDATE (n) ON events TO `+role+`; INSERT INTO events VALUES ('a', 0)`)
	defer db.Exec(t, `REVOKE ALL ON events FROM `+role)
	s, err := Open(t.Context(), postgres.Config{URL: postgrestest.WithUser(t, db.URL, role)}, work())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if rows, _, err := s.Name(t.Context()); err == nil || !strings.Contains(err.Error(), "row-level security") {
		t.Errorf("named %q, %v", ids(rows), err)
	}
	// These rights are enough, and less is not.
	db.Exec(t, `ALTER TABLE events DISABLE ROW LEVEL SECURITY`)
	if n := act(t, s, name(t, s)); n != 1 {
		t.Errorf("acted on %d rows", n)
	}
	db.Exec(t, `REVOKE UPDATE (n) ON events FROM `+role+`; INSERT INTO events VALUES ('b', 0)`)
	s.locked = time.Now()                  // rows are locked beforehand then, which takes that right
	if rows := name(t, s); len(rows) > 0 { // the first page ended after the row that is gone
		_, err = s.Act(context.WithoutCancel(t.Context()), rows)
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, "UPDATE on one column")
	} else {
		t.Error("named nothing")
	}
}

// The session's search_path is not that of the application: what a trigger names without its schema is not found.
func TestSession_SaysThatATriggerNamesNoSchema(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL)
		db.Exec(t, `INSERT INTO events VALUES ('a', 1); CREATE TABLE archive (LIKE events); CREATE TABLE gone (n int);
			CREATE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO gone VALUES (1); RETURN NULL; END';
			CREATE TRIGGER told AFTER DELETE ON events FOR EACH STATEMENT EXECUTE FUNCTION told()`)
		archives := work()
		archives.Archive = &Archive{Table: wal.Table{Schema: "public", Name: "archive"}, Columns: []string{"id", "n", "published_at"}}
		for _, w := range []Work{work(), archives} {
			s := opened(t, db, w)
			_, err := s.Act(t.Context(), name(t, s))
			postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableMissing, `"gone"`, "name it with its schema in the function")
			s.Close()
		}
		db.Exec(t, `CREATE OR REPLACE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.gone VALUES (1); RETURN NULL; END'`)
		s := opened(t, db, work())
		if n, err := s.Act(t.Context(), name(t, s)); n != 1 || err != nil {
			t.Errorf("%d rows, %v", n, err)
		}
	})
}
