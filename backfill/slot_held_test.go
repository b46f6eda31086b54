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

// The server may not have ended the connection that held the backfill's slot, and then does not drop it
// at the first try.
func TestBackfill_WaitsUntilItsSlotIsFree(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}))
	s.write(t, 1, 10)
	cfg := s.settings.Replication.OfShard(0)
	cfg.Slot = cfg.BackfillSlot()
	var holding sync.WaitGroup
	defer holding.Wait()
	_, err := s.attempt(t.Context(), byID, func(step string) {
		if step != "copied" {
			return
		}
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
			start := held.Start()
			time.AfterFunc(time.Second, held.Abort)
			_ = held.Run(t.Context(), make(chan *wal.Batch), func() wal.LSN { return start })
			_ = held.Close(t.Context(), start)
		})
	})
	if err != nil {
		t.Error(err)
	}
}
