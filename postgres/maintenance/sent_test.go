package maintenance

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A table that was taken out of a publication and put back shows it, and no other table does.
func TestSurveyor_SeesThatATableWasPutBack(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run("postgres"+version, func(t *testing.T) {
			t.Parallel()
			db := harness.Postgres(t, version)
			db.Exec(t, "CREATE TABLE one (n int); CREATE TABLE other (n int); CREATE PUBLICATION both_of FOR TABLE one, other")
			s, err := OpenSurvey(t.Context(), postgres.Config{URL: db.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			look := func(table string) string {
				t.Helper()
				sent, err := s.SurveyPublished(t.Context(), uint32(harness.Query[int64](t, db, "SELECT $1::text::regclass::oid::bigint", table)), []string{"both_of"})
				if err != nil {
					t.Fatal(err)
				}
				if len(sent.Unpublished) > 0 {
					t.Fatalf("%s is not published: %q", table, sent.Unpublished)
				}
				return fmt.Sprint(sent.Published)
			}
			one, other := look("one"), look("other")
			if one == "" || look("one") != one {
				t.Fatalf("without a change: %q", look("one"))
			}
			db.Exec(t, "ALTER PUBLICATION both_of DROP TABLE one")
			db.Exec(t, "ALTER PUBLICATION both_of ADD TABLE one")
			if look("one") == one {
				t.Error("the table was taken out and put back, and nothing shows it")
			}
			db.Exec(t, "CREATE TABLE another (n int); ALTER PUBLICATION both_of ADD TABLE another")
			db.Exec(t, "VACUUM FREEZE pg_publication, pg_publication_rel")
			if harness.Query[bool](t, db, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") {
				db.Exec(t, "VACUUM FULL pg_publication, pg_publication_rel")
			}
			if look("other") != other {
				t.Errorf("nothing happened to the other table: %q, before %q", look("other"), other)
			}
		})
	}
}

// So does one that was moved out of a schema that is published, and back.
func TestSurveyor_SeesThatATableWasMovedBack(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"15", "18"} { // before, no schema is published
		t.Run("postgres"+version, func(t *testing.T) {
			t.Parallel()
			db := harness.Postgres(t, version)
			db.Exec(t, "CREATE SCHEMA elsewhere; CREATE TABLE one (n int PRIMARY KEY); CREATE PUBLICATION all_of FOR TABLES IN SCHEMA public")
			s, err := OpenSurvey(t.Context(), postgres.Config{URL: db.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			oid := uint32(harness.Query[int64](t, db, "SELECT 'one'::regclass::oid::bigint"))
			look := func() string {
				t.Helper()
				sent, err := s.SurveyPublished(t.Context(), oid, []string{"all_of"})
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprint(sent.Published)
			}
			before := look()
			db.Exec(t, "ALTER TABLE one ADD COLUMN m int; GRANT SELECT ON one TO PUBLIC; CREATE INDEX ON one (m)")
			db.Exec(t, "VACUUM FREEZE pg_depend")
			if look() != before {
				t.Errorf("the table did not move: %q, before %q", look(), before)
			}
			db.Exec(t, "ALTER TABLE one SET SCHEMA elsewhere")
			db.Exec(t, "ALTER TABLE elsewhere.one SET SCHEMA public")
			if look() == before {
				t.Error("the table was moved out of the schema and back, and nothing shows it")
			}
		})
	}
}
