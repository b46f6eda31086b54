package setup

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
)

func TestGapPatience_GrowsWithTheSlots(t *testing.T) {
	if one, all := gapPatience(1), gapPatience(postgres.MaxShards); one < time.Minute || all < one+(postgres.MaxShards-1)*time.Second {
		t.Errorf("%s for one slot, %s for %d", one, all, postgres.MaxShards)
	}
}
