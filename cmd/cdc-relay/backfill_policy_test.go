package main

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
)

// A policy hides rows from the role, and no grant that sql prints changes that.
func TestBackfill_NamesTheRightToPassAPolicy(t *testing.T) {
	t.Parallel()
	k := newOld(t, "18", keeping["detect_moved_slot"])
	k.write(t, 1, 3)
	k.db.Exec(t, "ALTER TABLE outbox ENABLE ROW LEVEL SECURITY")
	k.db.Exec(t, "CREATE PUBLICATION "+k.slot+" FOR TABLE outbox WITH (publish = 'insert')")
	role := postgrestest.NewRole(t, k.db, "LOGIN REPLICATION")
	k.db.Exec(t, "GRANT USAGE ON SCHEMA public TO "+role)
	k.db.Exec(t, "GRANT SELECT ON outbox TO "+role)
	defer k.db.Exec(t, "DROP OWNED BY "+role)
	env := append(slices.Clone(k.env), "CDC_RELAY_POSTGRES_URL="+postgrestest.WithUser(t, k.db.URL, role))
	invoke(t, env, "backfill", "--all").want(t, exitRefused, "", "row-level security of table public.outbox applies to the role that connects, and may hide rows; connect as a role with BYPASSRLS, or as the table's owner unless its policies are forced")
	k.db.Exec(t, "ALTER ROLE "+role+" BYPASSRLS")
	invoke(t, env, "backfill", "--all").want(t, exitOK, "3 rows", "")
}
