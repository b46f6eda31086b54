package maintenance

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A column that is added and filled during a run would be in no archive and in no file. Of one that gets
// another type, an archive would round the values to the former one, and a file name the former one.
func TestSession_TakesNoRowOfAColumnThatItDoesNotKnow(t *testing.T) {
	for how, change := range map[string]string{
		"added":                `ALTER TABLE events ADD COLUMN more text DEFAULT 'filled'`,
		"swapped":              `ALTER TABLE events RENAME COLUMN n TO x; ALTER TABLE events RENAME COLUMN published_at TO n; ALTER TABLE events RENAME COLUMN x TO published_at`,
		"swapped, of one type": `ALTER TABLE events RENAME COLUMN n TO x; ALTER TABLE events RENAME COLUMN other TO n; ALTER TABLE events RENAME COLUMN x TO other`,
		"altered":              `ALTER TABLE events ALTER n TYPE numeric(20, 4)`,
	} {
		t.Run(how, func(t *testing.T) {
			db := harness.Postgres(t)
			db.Exec(t, eventsSQL)
			db.Exec(t, `ALTER TABLE events ADD COLUMN other int; CREATE TABLE archive (LIKE events); INSERT INTO events VALUES ('a', 1), ('b', 2)`)
			w := work()
			surveyor, err := OpenSurvey(t.Context(), postgres.Config{URL: db.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer surveyor.Close()
			survey, err := surveyor.Table(t.Context(), events, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			w.Columns = survey.Columns
			w.Archive = &Archive{Table: wal.Table{Schema: "public", Name: "archive"}, Columns: []string{"id"}}
			s := opened(t, db, w)
			rows := name(t, s)
			read := func() int {
				t.Helper()
				there, err := s.Contents(t.Context(), rows, w.Columns, func([]*string) error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				return len(there)
			}
			if n := read(); n != 2 {
				t.Fatalf("%d rows of 2 were read", n)
			}
			if n := act(t, s, rows[:1]); n != 1 {
				t.Fatalf("%d rows of 1 were moved", n)
			}
			db.Exec(t, change)
			rows = append(rows[:0], name(t, opened(t, db, Work{Table: events, ID: "id", Limit: 10, Lock: MarkLockClass}))...) // perhaps in another file
			if n := read(); n != 0 {
				t.Errorf("%d rows were read of columns that changed", n)
			}
			if n := act(t, s, rows); n != 0 || harness.Query[int](t, db, `SELECT count(*)::int FROM events`) != 1 {
				t.Errorf("%d rows were moved of columns that changed", n)
			}
		})
	}
}

func TestSurvey_KnowsWhetherRowsMayBeEqual(t *testing.T) {
	db := harness.Postgres(t)
	surveyor, err := OpenSurvey(t.Context(), postgres.Config{URL: db.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(surveyor.Close)
	for definition, unique := range map[string]bool{
		"(id int PRIMARY KEY)": true, "(id int, n int NOT NULL, UNIQUE (n))": true, "(id int)": false, "(id int UNIQUE)": false, "(id int NOT NULL, n int, UNIQUE (id, n))": false,
	} {
		db.Exec(t, `DROP TABLE IF EXISTS events; CREATE TABLE events `+definition)
		if found, err := surveyor.Table(t.Context(), events, nil, nil); err != nil || found.Unique != unique {
			t.Errorf("%s: %v, %v", definition, found, err)
		}
	}
}

// An archive of partitions is as durable, and as private, as the one that the rows go to.
func TestSurvey_LooksAtThePartitionsOfAnArchive(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL)
		db.Exec(t, `CREATE TABLE archive (LIKE events) PARTITION BY RANGE (n); CREATE TABLE archive_old PARTITION OF archive FOR VALUES FROM (0) TO (10);
			CREATE UNLOGGED TABLE archive_new PARTITION OF archive DEFAULT; CREATE PUBLICATION ours FOR TABLE archive_old, events; CREATE PUBLICATION another FOR TABLE archive`)
		surveyor, err := OpenSurvey(t.Context(), postgres.Config{URL: db.URL})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(surveyor.Close)
		for _, want := range []struct {
			change                 string
			unlogged, publications []string
		}{
			{`SELECT`, []string{"public.archive_new"}, []string{"ours"}},
			{`ALTER TABLE archive_new SET LOGGED; ALTER PUBLICATION ours SET TABLE archive, events`, nil, []string{"ours"}},
			{`ALTER PUBLICATION ours SET TABLE events`, nil, nil},
		} {
			db.Exec(t, want.change)
			found, err := surveyor.Table(t.Context(), events, &wal.Table{Schema: "public", Name: "archive"}, []string{"ours"})
			if err != nil || !found.Archive.Permanent || !slices.Equal(found.Archive.Unlogged, want.unlogged) || !slices.Equal(found.Archive.Publications, want.publications) {
				t.Errorf("%s: %+v, %v", want.change, found.Archive, err)
			}
		}
	})
}
