package overtaken

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/relay"
)

// A slot parks the keys of its own letters alone. Those of the slots of another number of shards
// are held back by nobody.
func TestLetters_OfFormerShardsAreOvertaken(t *testing.T) {
	cfg := settings(relay.DeadLetterOnReject, true)
	cfg.Replication.Shard.Slot, cfg.Replication.Shard.Count, cfg.Replication.Slot = "now", 2, "now_2_0"
	l := newLetters(cfg)
	l.there.Slots = []string{"5/now_2_0", "5/now_2_1"}
	l.read(letter("7/5/now", "public.outbox", "a", "route", 0))
	if found := l.overtaken(); len(found) != 1 {
		t.Errorf("%d sources whose letters are overtaken", len(found))
	}
}
