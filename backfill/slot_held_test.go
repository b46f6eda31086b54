package backfill

import (
	"strings"
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
	hold := func(lasts time.Duration) {
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
			time.AfterFunc(lasts, held.Abort)
			_ = held.Run(t.Context(), make(chan *wal.Batch), func() wal.LSN { return start })
			_ = held.Close(t.Context(), start)
		})
	}
	s.endedAt(t, byID, "slot_made")
	hold(3 * time.Second)
	pid := harness.Query[string](t, s.db, "SELECT active_pid::text FROM pg_replication_slots WHERE slot_name = $1", s.slot+"_backfill")
	text, err := s.attempt(t.Context(), byID, func(step string) {
		if step == "copied" {
			hold(500 * time.Millisecond)
		}
	})
	if err != nil {
		t.Error(err)
	}
	if says := `which uses slot "` + s.slot + `_backfill": pid ` + pid + "\n"; strings.Count(text, says) != 1 {
		t.Errorf("it does not say once %q:\n%s", says, text)
	}
}
