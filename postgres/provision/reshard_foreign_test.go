package provision_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Slots of the new number that somebody else made begin later than the old one stands.
func TestReshard_KeepsTheOldSlotsWhereTheNewOnesAreNoCopies(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE moved (n bigserial PRIMARY KEY, key text)`)
	next := shardConfig(t, db, 2, "key", wal.Table{Schema: "public", Name: "moved"})
	one := undivided(t, next)
	db.Exec(t, `INSERT INTO moved (key) VALUES ('in the old slot alone')`)
	for _, shard := range next.Shards() {
		db.Exec(t, `SELECT pg_create_logical_replication_slot('`+shard.Slot+`', 'pgoutput')`)
	}
	_, err := provision.Reshard(t.Context(), next, 1, provision.ReshardOptions{})
	if n := harness.Query[int](t, db, `SELECT count(*)::int FROM pg_replication_slots WHERE slot_name = $1`, one.Slot); n != 1 || err == nil {
		t.Errorf("%d old slots are left, and the error is %v: the row is in no slot", n, err)
	}
}
