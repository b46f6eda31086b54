package relay

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
)

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
