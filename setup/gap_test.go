package setup

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestGapPatience_GrowsWithTheSlots(t *testing.T) {
	if one, all := gapPatience(1), gapPatience(postgres.MaxShards); one < time.Minute || all < one+(postgres.MaxShards-1)*time.Second {
		t.Errorf("%s for one slot, %s for %d", one, all, postgres.MaxShards)
	}
}

// A relay waits for the new primary, and the checkpoint is of that one's slot.
func TestSetup_AcceptsNoGapOnAnOldPrimary(t *testing.T) {
	origin := wal.Origin{SystemID: "7", Timeline: 1}
	rec := stored.Position{System: "7", Timeline: 2, Slot: "s", Publication: "p", End: 300}
	cfg := relay.Config{DetectMovedSlot: true, Replication: postgres.Config{Slot: "s", Publication: "p"}}
	known := map[string][]byte{stored.PromiseKey("somebody", "7", "s"): rec.Encode()}
	if end, err := compared(cfg, origin, 310, known); postgres.Reason(err) != fault.ReasonStalePrimary {
		t.Errorf("connected up to %s, %v", end, err)
	}
}
