package maintenance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// all names every row once.
func all(t *testing.T, s *Session) (pages []string) {
	t.Helper()
	for {
		rows := name(t, s)
		if len(rows) == 0 {
			return pages
		}
		pages = append(pages, ids(rows))
	}
}

// The order is that of the values and not of their text, which begins a year 12000 with a 1.
// Rows of one value are divided by their places.
func TestSession_NamesInTheOrderOfAnIndex(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL+`; CREATE INDEX ON events (published_at)`)
		db.Exec(t, `INSERT INTO events VALUES ('h', 0, '12000-01-01'), ('d', 0, '2026-01-01'), ('e', 0, '2026-01-01'), ('f', 0, '2026-01-01'), ('c', 0, '2025-12-31 23:59:59.999999'),
			('g', 0, '2026-01-01 00:00:00.000001'), ('b', 0, '0044-03-15 BC'), ('a', 0, '-infinity'), ('i', 0, 'infinity'), ('none', 0, NULL)`)
		w := work()
		w.Limit, w.Order, w.Where = 2, `"published_at"`, "published_at IS NOT NULL"
		s := opened(t, db, w)
		for range 2 { // it begins again
			if got, want := strings.Join(all(t, s), "|"), "a b|c d|e f|g h|i"; got != want {
				t.Errorf("named %s, want %s", got, want)
			}
		}
	})
}

// A server knows no order of places. Without windows each batch would read the table.
func TestSession_NamesByPlaceThroughEveryBlock(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL)
		db.Exec(t, `INSERT INTO events SELECT n || repeat('x', 1500), n FROM generate_series(1, 500) n; DELETE FROM events WHERE n BETWEEN 100 AND 400`)
		db.Exec(t, `VACUUM events`)
		w := work()
		w.Limit, w.ID = 7, "n"
		s := opened(t, db, w)
		seen := strings.Fields(strings.Join(all(t, s), " "))
		if len(seen) != 199 || seen[0] != "1" || seen[198] != "500" {
			t.Errorf("named %d rows: %v", len(seen), seen)
		}
	})
}

// Without the right to lock a row, the delete waits for whoever has it, and spares the row that
// is another version then.
func TestSession_WaitsForLockedRows(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL)
		db.Exec(t, `INSERT INTO events VALUES ('a', 0), ('b', 0), ('c', 0)`)
		w := work()
		w.Waits = true
		s := opened(t, db, w)
		rows := name(t, s)
		locker := db.Connect(t)
		exec := func(sql string) {
			t.Helper()
			if _, err := locker.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		exec(`BEGIN; UPDATE events SET n = 1 WHERE id = 'b'`)
		_, err := s.Act(t.Context(), rows)
		postgrestest.WantError(t, err, fault.KindRetry, fault.ReasonLockTimeout, "lock timeout")
		if got := left(t, db); got != "a0 b0 c0" {
			t.Fatalf("left: %s", got)
		}
		if err := s.q.Exec(`SET lock_timeout = 0; SET statement_timeout = 0`); err != nil { // however late this test sees that it waits
			t.Fatal(err)
		}
		done := make(chan int)
		go func() {
			n, err := s.Act(t.Context(), rows)
			if err != nil {
				t.Error(err)
			}
			done <- n
		}()
		for !harness.Query[bool](t, db, `SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'cdc-relay maintenance' AND wait_event_type = 'Lock' AND datname = current_database()`) {
			time.Sleep(time.Millisecond) //nolint:forbidigo // the server shows it, and tells nobody
		}
		exec("COMMIT")
		if n := <-done; n != 2 || left(t, db) != "b1" {
			t.Errorf("acted on %d rows, left: %s", n, left(t, db))
		}
	})
}

func TestSession_MovesRowsToAnArchive(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL)
		db.Exec(t, `CREATE TABLE kept (n int, more int DEFAULT 7, id text PRIMARY KEY, number int GENERATED ALWAYS AS IDENTITY, published_at timestamptz);
			INSERT INTO events VALUES ('a', 1), ('b', 2), ('c', 3), ('d', 4)`)
		for _, waits := range []bool{true, false} {
			db.Exec(t, `TRUNCATE kept; TRUNCATE events; INSERT INTO events VALUES ('a', 1), ('b', 2), ('c', 3), ('d', 4)`)
			w := work()
			w.Waits, w.Archive = waits, &Archive{Table: events, Columns: []string{"id", "n", "published_at"}}
			w.Archive.Table.Name = "kept"
			s := opened(t, db, w)
			rows := name(t, s)
			db.Exec(t, `UPDATE events SET n = 9 WHERE id = 'b'`)

			// One row that the archive refuses keeps all.
			db.Exec(t, `INSERT INTO kept (id) VALUES ('c')`)
			if n, err := s.Act(t.Context(), rows); n != 0 || err == nil || !strings.Contains(err.Error(), "duplicate key") {
				t.Errorf("acted on %d rows, %v", n, err)
			}
			if got := left(t, db); got != "a1 b9 c3 d4" {
				t.Errorf("left: %s", got)
			}
			db.Exec(t, `DELETE FROM kept`)
			if n := act(t, s, rows); n != 3 || left(t, db) != "b9" {
				t.Errorf("acted on %d rows, left: %s", n, left(t, db))
			}
			if got := harness.Query[string](t, db, `SELECT string_agg(id || n || more, ' ' ORDER BY id) FROM kept`); got != "a17 c37 d47" {
				t.Errorf("archived: %s", got)
			}
			s.Close()
			for harness.Query[bool](t, db, `SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) {
				time.Sleep(time.Millisecond) //nolint:forbidigo // the server ends a session a moment after its client
			}
		}
	})
}

// The plan of the server decides which index is of use.
func TestSurveyor_FindsTheIndexOfAnOrder(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL+`; INSERT INTO events SELECT n::text, n % 3, now() - n * interval '1s' FROM generate_series(1, 5000) n`)
		oid := uint32(harness.Query[int64](t, db, `SELECT 'events'::regclass::oid::bigint`))
		s, err := OpenSurvey(t.Context(), postgres.Config{URL: db.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		index := func(where string) string {
			t.Helper()
			found, err := s.Index(t.Context(), Work{Table: events, Order: `"published_at"`, Limit: 100, Where: "published_at < pg_catalog.now()" + where}, oid)
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		for i, step := range []struct{ sql, where, want string }{
			{"", "", ""},
			{"CREATE INDEX pk ON events (id)", "", ""},
			{"CREATE INDEX brin ON events USING brin (published_at)", "", ""},
			{"CREATE INDEX second ON events (n, published_at)", "", ""},
			{"", " AND n = 1", "second"},
			{"CREATE INDEX part ON events (published_at) WHERE n > 0", "", ""},
			{"", " AND n > 0", "part"},
			{"CREATE INDEX whole ON events (published_at DESC)", "", "whole"},
		} {
			if step.sql != "" {
				db.Exec(t, step.sql)
			}
			if got := index(step.where); got != step.want {
				t.Errorf("%d: %q with %q: index %q, want %q", i, step.sql, step.where, got, step.want)
			}
		}
	})
}

func TestSurveyor_ReadsAConditionAsOneExpression(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL)
	s, err := OpenSurvey(t.Context(), postgres.Config{URL: db.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for condition, good := range map[string]bool{
		"n = 1": true, "n = 1 -- x": true, "id IN (SELECT id FROM public.events)": true, "n": false, "n = 1) OR (true": false, "true) --": false, "true THEN true END, CASE WHEN true": false,
		"n = 1; DELETE FROM public.events": false, "n = $1": false, "": false,
	} {
		if err := s.Condition(t.Context(), events, condition); (err == nil) != good {
			t.Errorf("%s: %v", condition, err)
		}
	}
	if _, err := s.session.q.One("SELECT 1"); err != nil {
		t.Errorf("the session is of no use any more: %v", err)
	}
}

func TestSurveyor_CountsWhatIsDue(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL+`; INSERT INTO events VALUES ('a', 1, '2020-01-01 00:00:00.25Z'), ('b', 1, '2021-01-01Z'), ('c', 1, '-infinity'), ('d', 1, NULL), ('e', 1, now() + interval '1h'), ('f', 2, '2019-01-01Z'), ('g', 1, 'infinity')`)
	s, err := OpenSurvey(t.Context(), postgres.Config{URL: db.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	due, err := s.CountDue(t.Context(), events, "published_at", "published_at < now() AND n = 1")
	if err != nil || !due.Counted || due.Rows != 3 || due.Undated != 2 || due.Oldest == nil || due.Oldest.Format(time.RFC3339Nano) != "2020-01-01T00:00:00.25Z" {
		t.Errorf("%+v, %v", due, err)
	}
	if due, err = s.CountDue(t.Context(), events, "published_at", "n = 3"); err != nil || due.Rows != 0 || due.Oldest != nil {
		t.Errorf("%+v, %v", due, err)
	}
	if _, err := s.Table(t.Context(), events, nil, nil); err != nil {
		t.Error(err)
	}
}

// Rows without a value in the order come last, and none is left out, whatever the batches.
func TestSession_NamesRowsWithoutAValueInTheOrder(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL+`; CREATE INDEX ON events (n)`)
	db.Exec(t, `INSERT INTO events SELECT chr(97 + i), CASE WHEN i % 2 = 0 THEN i / 4 END FROM generate_series(0, 9) i`)
	for _, limit := range []int{1, 2, 3, 5, 7, 10, 11} {
		w := work()
		w.Order, w.Limit = "n", limit
		s := opened(t, db, w)
		for range 2 { // it begins again
			var all []proof.Row
			for rows := name(t, s); len(rows) > 0; rows = name(t, s) {
				all = append(all, rows...)
			}
			if ids(all) != "a c e g i b d f h j" {
				t.Errorf("batches of %d: %q", limit, ids(all))
			}
		}
		s.Close()
		for free := false; !free; { // the server ends a session a moment after its client
			free = harness.Query[int64](t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == 0
		}
	}
}

// Rows that are written while others are named do not keep it from beginning again: one that was
// committed late, before the place where it is, gets its turn.
func TestSession_BeginsAgainAlthoughRowsAreWritten(t *testing.T) {
	db := harness.Postgres(t)
	for order, index := range map[string]string{"n": "CREATE INDEX ON events (n)", "": "SELECT 1"} {
		most := map[string]int{"n": 1, "": 2}[order] // batches
		db.Exec(t, `DROP PUBLICATION IF EXISTS cdc_relay; DROP TABLE IF EXISTS events; `+eventsSQL+`; `+index)
		w := work()
		w.Order, w.Limit = order, 100
		s := opened(t, db, w)
		db.Exec(t, `INSERT INTO events SELECT 'x', n FROM generate_series(100, 150) n`)
		for batch := 1; len(name(t, s)) > 0; batch++ {
			if batch > most {
				t.Fatalf("by %q: it goes on with rows that are written all the time", order)
			}
			db.Exec(t, `INSERT INTO events SELECT repeat('x', 500), max(n) + 1 + i FROM events, generate_series(1, 50) i GROUP BY i`)
		}
		s.Close()
	}
}

// A server that may start workers has a plan of another kind, which has the index as well.
func TestSurveyor_FindsTheIndexOfRowsOfOneTime(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL+`; CREATE INDEX events_index ON events (published_at)`)
		db.Exec(t, `INSERT INTO events SELECT n || repeat('x', 200), n, '2026-01-01' FROM generate_series(1, 120000) n`)
		db.Exec(t, `ALTER TABLE events SET (parallel_workers = 2)`)
		db.Exec(t, `VACUUM ANALYZE events`)
		db.Exec(t, `DO $$ DECLARE setting text; BEGIN
			FOREACH setting IN ARRAY ARRAY['parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_index_scan_size'] LOOP
				EXECUTE format('ALTER DATABASE %I SET %I = 0', current_database(), setting);
			END LOOP; END $$`)
		w := work()
		w.Limit, w.Order, w.Where = 1000, `"published_at"`, "published_at < now()"
		s := opened(t, db, w)
		surveyor, err := OpenSurvey(t.Context(), postgres.Config{URL: db.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer surveyor.Close()
		if name, err := surveyor.Index(t.Context(), w, s.OID()); name != "events_index" || err != nil {
			t.Errorf("index %q, %v", name, err)
		}
	})
}

// To name some rows of one time the server reads all of them, so more of them are named at once.
func TestSession_NamesMoreRowsOfOneTimeAtOnce(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL+`; CREATE INDEX ON events (published_at)`)
		db.Exec(t, `INSERT INTO events SELECT n, n, '2026-01-01' FROM generate_series(10, 40) n; INSERT INTO events SELECT n, n, '2026-01-02'::date + n FROM generate_series(41, 46) n`)
		w := work()
		w.Limit, w.Tied, w.Order, w.Where = 2, 8, `"published_at"`, "published_at IS NOT NULL"
		s := opened(t, db, w)
		for range 2 { // it begins again
			var sizes []int
			seen := ""
			for _, page := range all(t, s) {
				sizes = append(sizes, len(strings.Fields(page)))
				seen += page + " "
			}
			if want := []int{2, 2, 4, 8, 8, 8, 2, 2, 1}; !slices.Equal(sizes, want) || len(strings.Fields(seen)) != 37 {
				t.Errorf("batches of %v rows, want %v: %s", sizes, want, seen)
			}
		}
	})
}
