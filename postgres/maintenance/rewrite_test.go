package maintenance

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// VACUUM FULL and CLUSTER keep the transaction of a row and change its place. Rows of one
// transaction differ in their places alone.
func TestSession_ActsOnNoOtherRowAfterTheTableWasWrittenAnew(t *testing.T) {
	for how, rewrite := range map[string]string{"vacuum full": `VACUUM FULL events`, "cluster": `CLUSTER events USING events_n`} {
		t.Run(how, func(t *testing.T) {
			harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
				db.Exec(t, eventsSQL)
				db.Exec(t, `CREATE INDEX events_n ON events (n); INSERT INTO events SELECT lpad(i::text, 3, '0'), i FROM generate_series(0, 99) i`)
				db.Exec(t, `DELETE FROM events WHERE n < 20`)
				w := work()
				w.Limit = 20
				s := opened(t, db, w)
				rows := name(t, s)
				if first, last := rows[0].ID, rows[len(rows)-1].ID; first != "020" || last != "039" {
					t.Fatalf("named %s to %s", first, last)
				}
				db.Exec(t, rewrite)
				if n := act(t, s, rows); n != 0 || harness.Query[int](t, db, `SELECT count(*)::int FROM events`) != 80 {
					t.Errorf("acted on %d rows that were not named", n)
				}
				read, err := s.Contents(t.Context(), rows, []Column{{Name: "id"}}, func([]*string) error { return nil })
				if err != nil || len(read) != 0 {
					t.Errorf("read %d rows that were not named, %v", len(read), err)
				}
				s = reopened(t, db, s, w)
				if rows = name(t, s); act(t, s, rows) != 20 || harness.Query[int](t, db, `SELECT count(*)::int FROM events WHERE n >= 40`) != 60 {
					t.Errorf("of the new file other rows were acted on than %s", ids(rows))
				}
			})
		})
	}
}

func reopened(t *testing.T, db *harness.Database, s *Session, w Work) *Session {
	t.Helper()
	s.Close()
	return opened(t, db, w)
}
