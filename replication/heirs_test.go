package replication

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Rows of a child by INHERITS carry its own name in the stream.
func TestSetup_PublishesAParentWithoutItsChildren(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := config(t, db)
		cfg.Tables = []Table{{"public", "outbox"}}
		db.Exec(t, `CREATE TABLE outbox (id uuid PRIMARY KEY, payload jsonb); CREATE TABLE outbox_old (PRIMARY KEY (id)) INHERITS (outbox);
			CREATE TABLE "Older" (PRIMARY KEY (id)) INHERITS (outbox_old)`)
		report, err := Setup(t.Context(), cfg, SetupOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if warnings := strings.Join(report.Warnings, "\n"); !strings.Contains(warnings, `public.outbox has child tables (public."Older", public.outbox_old)`) {
			t.Errorf("warnings %q", warnings)
		}
		if got := harness.Query[string](t, db, `SELECT string_agg(tablename, ' ') FROM pg_publication_tables`); got != "outbox" {
			t.Errorf("published: %s", got)
		}
		checked := Check(t.Context(), cfg)
		wantFinding(t, checked, "table.children", LevelWarn, "public.outbox_old", "configure each")
		wantFinding(t, checked, "publication.tables", LevelOK, "public.outbox")

		all := cfg
		all.Tables = []Table{{"public", "outbox"}, {"public", "outbox_old"}, {"public", "Older"}}
		for _, f := range Check(t.Context(), all).Findings {
			if f.Check == "table.children" {
				t.Errorf("children that are configured: %+v", f)
			}
		}

		// As another program, or an older version, made it.
		db.Exec(t, `DROP PUBLICATION cdc_relay; CREATE PUBLICATION cdc_relay FOR TABLE outbox WITH (publish = 'insert')`)
		for _, f := range Check(t.Context(), cfg).Findings {
			if f.Check == "publication.tables" && f.Level != LevelOK {
				t.Errorf("its own children count as strangers: %+v", f)
			}
		}
		done, err := Teardown(t.Context(), cfg, true)
		if err != nil || describe(done) != "slot do, publication do" {
			t.Errorf("teardown: %s, %v", describe(done), err)
		}
	})
}

func TestSetup_TellsAnotherRoleHowToGoOn(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := outboxDatabase(t, db)
	db.Exec(t, `DROP PUBLICATION cdc_relay`)
	db.Exec(t, `SELECT pg_drop_replication_slot($1)`, cfg.Slot)
	relay := cfg
	relay.URL = withUser(t, cfg.URL, newRole(t, db, "LOGIN REPLICATION"))
	_, err := Setup(t.Context(), relay, SetupOptions{})
	wantError(t, err, KindRefused, ReasonPermission, "owner of the tables", "--set postgres.url=")

	owner := newRole(t, db, "LOGIN")
	defer db.Exec(t, `REASSIGN OWNED BY `+owner+` TO CURRENT_USER; DROP OWNED BY `+owner)
	db.Exec(t, `GRANT CREATE ON DATABASE `+db.Name+` TO `+owner)
	db.Exec(t, `ALTER TABLE outbox OWNER TO `+owner)
	asOwner := cfg
	asOwner.URL = withUser(t, cfg.URL, owner)
	_, err = Setup(t.Context(), asOwner, SetupOptions{})
	wantError(t, err, KindRefused, ReasonPermission, "again as the relay's role")
	if _, err := Setup(t.Context(), relay, SetupOptions{}); err != nil {
		t.Errorf("the second run, as the relay's role: %v", err)
	}
}
