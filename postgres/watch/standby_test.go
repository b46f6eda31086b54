package watch

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A server that waits for a standby sends a slot with failover nothing, and says so nowhere but in
// its log. A slot without failover does not wait.
func TestProbe_SeesAStandbyThatIsAway(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"17", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: map[string]string{"synchronized_standby_slots": "sb"}})
			cfg := postgrestest.OutboxDatabase(t, db)
			look := func() string {
				t.Helper()
				probe := NewProbe(cfg)
				defer probe.Close()
				s, err := probe.Read(t.Context())
				if err != nil || s.Drift != nil {
					t.Fatalf("%+v, %v", s, err)
				}
				return s.Away
			}
			if away := look(); away != "" {
				t.Errorf("of a slot without failover: %q", away)
			}
			cfg.Slot = "with_failover"
			db.Exec(t, `SELECT pg_create_logical_replication_slot('with_failover', 'pgoutput', false, false, true)`)
			if away := look(); !strings.HasPrefix(away, `synchronized_standby_slots names slot "sb", which does not exist; start the standby`) {
				t.Errorf("missing: %q", away)
			}
			db.Exec(t, `SELECT pg_create_physical_replication_slot('sb', true)`)
			if away := look(); !strings.HasPrefix(away, `synchronized_standby_slots names slot "sb", which is not active; start the standby`) {
				t.Errorf("inactive: %q", away)
			}
		})
	}
}
