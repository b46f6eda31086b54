package relay

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// A checkpoint inside a transaction names a row by its number, so other rules of numbering
// are another shape.
func TestShape_DiffersByConfigurationAndRules(t *testing.T) {
	one := postgres.Config{Publication: "p", Tables: []wal.Table{{Schema: "public", Name: "outbox"}}}
	two := one
	two.Publication = "q"
	if shapeOf(&one, 1) == shapeOf(&two, 1) || shapeOf(&one, 1) == shapeOf(&one, 2) {
		t.Error("the shapes are equal")
	}
}

func TestOfShard_DividesTheBudget(t *testing.T) {
	cfg := Config{MaxInFlightBytes: 32 << 20, Replication: postgres.Config{Shard: postgres.Shard{Count: 4, Slot: "s", Publication: "p"}}}
	one := cfg.OfShard(3, 4)
	if one.MaxInFlightBytes != 8<<20 || one.Replication.Slot != "s_4_3" || one.Replication.Publication != "p_4_3" {
		t.Errorf("%+v", one)
	}
	if some := cfg.OfShard(3, 2); some.MaxInFlightBytes != 16<<20 {
		t.Errorf("one of two shards of a process may hold %d bytes", some.MaxInFlightBytes)
	}
}
