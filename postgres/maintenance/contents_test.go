package maintenance

import (
	"errors"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Whoever takes the rows may be slow: the server waits, longer than for other statements, and the
// session is as before.
func TestContents_WaitsForWhoTakesTheRows(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL)
		db.Exec(t, "INSERT INTO events VALUES ('a', 1), ('b', 2)")
		patient := opened(t, db, Work{Table: events, ID: "id", Limit: 10, Where: "n = 1 OR current_setting('statement_timeout') = '10min'"})
		rows := name(t, opened(t, db, Work{Table: events, ID: "id", Limit: 10, Lock: MarkLockClass}))
		read := func() (got string, err error) {
			there, err := patient.Contents(t.Context(), rows, []Column{{Name: "id"}}, func(values []*string) error {
				got += *values[0]
				return nil
			})
			if err == nil && len(there) != len(got) {
				t.Errorf("%d rows given, %d named", len(got), len(there))
			}
			return got, err
		}
		if got, err := read(); err != nil || got != "ab" {
			t.Errorf("%q, %v: the usual timeout of a statement holds", got, err)
		}
		full := errors.New("no space left on device")
		if _, err := patient.Contents(t.Context(), rows, []Column{{Name: "id"}}, func([]*string) error { return full }); !errors.Is(err, full) {
			t.Error(err)
		}
		if _, err := patient.Contents(t.Context(), rows, []Column{{Name: "none"}}, nil); err == nil {
			t.Error("a column that is not there was read")
		}
		if got := ids(name(t, patient)); got != "a" {
			t.Errorf("named %q afterwards: the timeout stayed, or the transaction is open", got)
		}
	})
}

// Rows of an hour are together, in whatever order they were named.
func TestSlices_AreWholeHowManyRowsThereAre(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, eventsSQL)
	db.Exec(t, "INSERT INTO events SELECT i::text, i FROM generate_series(1, 2500) i")
	s := opened(t, db, Work{Table: events, ID: "id", Limit: 5000})
	rows := name(t, s)
	db.Exec(t, "DELETE FROM events WHERE n > 2400")
	all, err := s.Slices(t.Context(), rows, "(n % 2)::bigint")
	if err != nil || len(all) != 2 || all[0].Begin != 0 || len(all[0].Rows) != 1200 || all[1].Begin != 1 || len(all[1].Rows) != 1200 {
		t.Errorf("%d slices, %v", len(all), err)
	}
}

// A value is written as the server writes it. A cast to text is another thing: it takes the blanks of
// a bpchar away, adds a mask to an address, and is whatever a database has for a type of its own.
func TestContents_AreWhatTheServerWritesOut(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TYPE mood AS ENUM ('glad', 'sad');
		CREATE FUNCTION another(mood) RETURNS text IMMUTABLE LANGUAGE sql AS $$SELECT 'something else'$$; CREATE CAST (mood AS text) WITH FUNCTION another(mood);
		CREATE TABLE events (id int, blanks bpchar, one char(3), mood mood, at inet, yes boolean, none text);
		INSERT INTO events VALUES (1, 'a  ', 'b', 'glad', '10.0.0.1', true)`)
	surveyor, err := OpenSurvey(t.Context(), postgres.Config{URL: db.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(surveyor.Close)
	survey, err := surveyor.Table(t.Context(), events, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, got := opened(t, db, Work{Table: events, Limit: 1, Columns: survey.Columns}), []string{}
	_, err = s.Contents(t.Context(), name(t, s), survey.Columns, func(values []*string) error {
		for _, v := range values {
			if v == nil {
				got = append(got, "NULL")
			} else {
				got = append(got, *v)
			}
		}
		return nil
	})
	if want := []string{"1", "a  ", "b  ", "glad", "10.0.0.1", "true", "NULL"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("read %q, want %q (%v)", got, want, err)
	}
}
