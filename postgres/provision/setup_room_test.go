package provision_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A publication without a slot would be half of a setup.
func TestSetup_CountsFreeSlotsBeforeItMakesThePublication(t *testing.T) {
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{"max_replication_slots": "0"}})
	cfg := postgres.Config{URL: db.URL, Slot: "none", Publication: "none", Tables: []wal.Table{{Schema: "public", Name: "outbox"}}}
	db.Exec(t, `CREATE TABLE outbox (id uuid PRIMARY KEY, payload jsonb)`)
	for _, dry := range []bool{false, true} {
		_, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{DryRun: dry})
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonServerLimit, "max_replication_slots is 0", "ALTER SYSTEM SET max_replication_slots = 10")
	}
	db.Exec(t, `CREATE PUBLICATION none`) // it is not there
}
