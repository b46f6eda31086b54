package backfill

import (
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/handover"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
)

// The server may not have ended the connection that held the backfill's slot: that of an earlier call is
// no other backfill, and the slot is not dropped at the first try.
func TestBackfill_WaitsUntilItsSlotIsFree(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}))
	s.write(t, 1, 10)
	cfg := s.settings.Replication.OfShard(0)
	cfg.Slot = cfg.BackfillSlot()
	var holding sync.WaitGroup
	defer holding.Wait()
	hold := func() {
		var held *replication.Stream
		err := handover.WhenFree(t.Context(), func() (err error) {
			held, err = replication.Open(t.Context(), cfg, replication.Options{}, zerolog.Nop())
			return err
		})
		if err != nil {
			t.Error(err)
			return
		}
		holding.Go(func() {
			start := held.StartLSN()
			time.AfterFunc(500*time.Millisecond, held.Abort)
			_ = held.Run(t.Context(), make(chan *wal.Batch), func() wal.LSN { return start })
			_ = held.Close(t.Context(), start)
		})
	}
	s.endedAt(t, byID, "slot_made")
	hold()
	_, err := s.attempt(t.Context(), byID, func(step string) {
		if step == "copied" {
			hold()
		}
	})
	if err != nil {
		t.Error(err)
	}
}
