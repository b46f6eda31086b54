package cutover

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/handover"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
)

// The server may not have ended the connection of an earlier call yet. That is no other cutover.
func TestCutover_WaitsUntilItsSlotIsFree(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), byTime)
	options := markNew
	options.Settle = 0
	s.cancelledAt(t, options, "trigger_made")
	cfg := s.settings.Replication.OfShard(0)
	cfg.Slot = cfg.CutoverSlot()
	var held *replication.Stream
	err := handover.WhenFree(t.Context(), func() (err error) {
		held, err = replication.Open(t.Context(), cfg, replication.Options{}, zerolog.Nop())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	over := background(t, func(ctx context.Context) {
		start := held.Start()
		_ = held.Run(ctx, make(chan *wal.Batch), func() wal.LSN { return start })
		_ = held.Close(context.WithoutCancel(ctx), start)
	})
	time.AfterFunc(500*time.Millisecond, held.Abort)
	s.must(t, options)
	over()
}

// A call that was ended between the slot and the record of where it begins is repeated with the same
// flags, and means the same rows.
func TestCutover_StoppedAgainMeansTheSameRows(t *testing.T) {
	t.Parallel()
	for name, how := range map[string][]string{"positions are kept": keeps(t, "at_least_once"), "none are kept": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t), shape{"processed_at timestamptz, sent_at timestamptz", "sent_at IS NULL", "sent_at = now()"}, how...)
			s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, payload, processed_at) SELECT 'a', 'a', 'a', n::text, now() FROM generate_series(1, 3) n")
			options := Options{Mode: Stopped, Yes: true, Marks: []string{"sent_at"}}
			s.cancelledAt(t, options, "slot_made")
			text := s.must(t, options)
			if n := len(s.committed(t)); n != 3 {
				t.Errorf("%d of 3 rows that the publisher has not sent\n%s", n, text)
			}
		})
	}
}
