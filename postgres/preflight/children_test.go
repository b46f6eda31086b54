package preflight_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
	"github.com/cdc-relay/cdc-relay/postgres/preflight/preflighttest"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pglogrepl"
)

// What else is wrong with a table shows in the same round.
func TestCheck_LooksAtATableThatIsNotPublished(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	for _, sql := range []string{`ALTER PUBLICATION cdc_relay SET (publish = 'update')`, `DROP PUBLICATION cdc_relay; CREATE PUBLICATION cdc_relay`} {
		db.Exec(t, sql)
		report := preflight.Check(t.Context(), cfg)
		preflighttest.WantFinding(t, report, "publication.tables", advice.Fail)
		if len(report.Tables) != 1 || report.Tables[0].Relation == nil || !report.Tables[0].Readable {
			t.Errorf("%s: %+v", sql, report.Tables)
		}
	}
}

// outbox.md asks for one WAL sender, and the relay itself has it.
func TestCheck_TheOnlySenderIsOurOwn(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{"max_wal_senders": "1"}})
	cfg := postgrestest.OutboxDatabase(t, db)
	if err := pglogrepl.StartReplication(t.Context(), postgrestest.Open(t, cfg, true), cfg.Slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'cdc_relay'"},
	}); err != nil {
		t.Fatal(err)
	}
	report := preflight.Check(t.Context(), cfg)
	preflighttest.WantFinding(t, report, "postgres.senders_free", advice.Warn, "all 1 WAL senders", cfg.Slot)
	preflighttest.WantFinding(t, report, "postgres.replication", advice.Warn, "cannot be tried", cfg.Slot)
	for _, f := range report.Findings {
		if f.Level == advice.Fail {
			t.Errorf("beside our own stream: %+v", f)
		}
	}
}
