package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A publication without a slot would be half of a setup.
func TestSetup_CountsFreeSlotsBeforeItMakesThePublication(t *testing.T) {
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{"max_replication_slots": "0"}})
	cfg := Config{URL: db.URL, Slot: "none", Publication: "none", Tables: []Table{{Schema: "public", Name: "outbox"}}}
	db.Exec(t, `CREATE TABLE outbox (id uuid PRIMARY KEY, payload jsonb)`)
	for _, dry := range []bool{false, true} {
		_, err := Setup(t.Context(), cfg, SetupOptions{DryRun: dry})
		wantError(t, err, KindRefused, ReasonServerLimit, "max_replication_slots is 0", "ALTER SYSTEM SET max_replication_slots = 10")
	}
	db.Exec(t, `CREATE PUBLICATION none`) // it is not there
}
