package provision_test

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
	"github.com/cdc-relay/cdc-relay/postgres/preflight/preflighttest"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/teardown"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Rows of a child by INHERITS carry its own name in the stream.
func TestSetup_PublishesAParentWithoutItsChildren(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.Config(t, db)
		cfg.Tables = []wal.Table{{Schema: "public", Name: "outbox"}}
		db.Exec(t, `CREATE TABLE outbox (id uuid PRIMARY KEY, payload jsonb); CREATE TABLE outbox_old (PRIMARY KEY (id)) INHERITS (outbox);
			CREATE TABLE "Older" (PRIMARY KEY (id)) INHERITS (outbox_old)`)
		report, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if warnings := strings.Join(report.Warnings, "\n"); !strings.Contains(warnings, `public.outbox has child tables (public."Older", public.outbox_old)`) {
			t.Errorf("warnings %q", warnings)
		}
		if got := harness.Query[string](t, db, `SELECT string_agg(tablename, ' ') FROM pg_publication_tables`); got != "outbox" {
			t.Errorf("published: %s", got)
		}
		checked := preflight.Check(t.Context(), cfg)
		preflighttest.WantFinding(t, checked, "table.children", advice.Warn, "public.outbox_old", "configure each")
		preflighttest.WantFinding(t, checked, "publication.tables", advice.OK, "public.outbox")

		all := cfg
		all.Tables = []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: "outbox_old"}, {Schema: "public", Name: "Older"}}
		for _, f := range preflight.Check(t.Context(), all).Findings {
			if f.Check == "table.children" {
				t.Errorf("children that are configured: %+v", f)
			}
		}

		// As another program, or an older version, made it.
		db.Exec(t, `DROP PUBLICATION cdc_relay; CREATE PUBLICATION cdc_relay FOR TABLE outbox WITH (publish = 'insert')`)
		for _, f := range preflight.Check(t.Context(), cfg).Findings {
			if f.Check == "publication.tables" && f.Level != advice.OK {
				t.Errorf("its own children count as strangers: %+v", f)
			}
		}
		done, err := teardown.Run(t.Context(), cfg, true)
		if err != nil || describe(done) != "slot do, publication do" {
			t.Errorf("teardown: %s, %v", describe(done), err)
		}
	})
}

func TestSetup_TellsAnotherRoleHowToGoOn(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	db.Exec(t, `DROP PUBLICATION cdc_relay`)
	db.Exec(t, `SELECT pg_drop_replication_slot($1)`, cfg.Slot)
	relay := cfg
	relay.URL = postgrestest.WithUser(t, cfg.URL, postgrestest.NewRole(t, db, "LOGIN REPLICATION"))
	_, err := provision.Setup(t.Context(), relay, provision.SetupOptions{})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, "owner of the tables", "--set postgres.url=")

	owner := postgrestest.NewRole(t, db, "LOGIN")
	defer db.Exec(t, `REASSIGN OWNED BY `+owner+` TO CURRENT_USER; DROP OWNED BY `+owner)
	db.Exec(t, `GRANT CREATE ON DATABASE `+db.Name+` TO `+owner)
	db.Exec(t, `ALTER TABLE outbox OWNER TO `+owner)
	asOwner := cfg
	asOwner.URL = postgrestest.WithUser(t, cfg.URL, owner)
	_, err = provision.Setup(t.Context(), asOwner, provision.SetupOptions{})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, "again as the relay's role")
	if _, err := provision.Setup(t.Context(), relay, provision.SetupOptions{}); err != nil {
		t.Errorf("the second run, as the relay's role: %v", err)
	}
}
