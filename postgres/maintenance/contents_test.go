package maintenance

import (
	"errors"
	"testing"

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
