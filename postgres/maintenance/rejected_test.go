package maintenance

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestReject_CountsEachTextOnce(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL)
		db.Exec(t, `ALTER TABLE events ADD "Last error" varchar(20), ADD tries smallint; CREATE INDEX ON events (id);
			INSERT INTO events (id, tries) VALUES ('a', NULL), ('b', 7), ('c', 32767), ('d', 0)`)
		s := opened(t, db, work())
		to := &RejectedColumns{ID: "id", IDType: "text", Error: "Last error", ErrorType: "character varying(20)", Attempts: "tries", MostAttempts: 1<<15 - 1}
		reject := func(want int, all ...Rejected) {
			t.Helper()
			if got, err := s.Reject(t.Context(), to, all); err != nil || got != want {
				t.Errorf("%d rows were written, want %d (%v)", got, want, err)
			}
		}
		shows := func(want string) {
			t.Helper()
			if got := harness.Query[string](t, db, `SELECT string_agg(concat_ws(' ', id, tries, "Last error"), ', ' ORDER BY id) FROM events`); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		first := []Rejected{{"a", "encode, dead letter 0/1"}, {"b", "it's"}, {"c", "encode, dead letter 0/3"}, {"none", "encode"}}
		reject(3, first...)
		shows("a 1 encode, dead letter , b 8 it's, c 32767 encode, dead letter , d 0")
		reject(0, first...) // as after a kill
		reject(1, Rejected{"b", "another"})
		shows("a 1 encode, dead letter , b 9 another, c 32767 encode, dead letter , d 0")

		holder, err := pgx.Connect(t.Context(), db.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close(t.Context())
		if _, err := holder.Exec(t.Context(), "BEGIN; SELECT FROM events WHERE id = 'd' FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		reject(1, Rejected{"d", "x"}, Rejected{"a", "x"})
		if _, err := holder.Exec(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		reject(1, Rejected{"d", "x"}, Rejected{"a", "x"})
		to.Attempts = ""
		reject(1, Rejected{"d", "y"})
		shows("a 2 x, b 9 another, c 32767 encode, dead letter , d 1 y")
	})
}
