package integration

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestOrder_IsKeptForEachKeyUnderLoad(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
		p, w := outbox(t, db, brokers)
		r := p.Start(t)
		w.Start(t, 4, 4*time.Millisecond)
		<-time.After(1500 * time.Millisecond) // load, not a wait for an event
		w.Stop(t)
		p.AwaitCaughtUp(t)
		r.Stop(t)
		if duplicates := w.Verify(t); duplicates != 0 {
			t.Errorf("duplicates = %d without any fault", duplicates)
		}
	})
}

// Rows committed between setup and the first run are not lost, however long that
// takes.
func TestStart_DeliversWhatWasCommittedSinceSetup(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
		p, w := outbox(t, db, brokers)
		w.Insert(t, 2500)
		db.Exec(t, "CHECKPOINT")
		w.Insert(t, 1)
		r := p.Start(t)
		p.AwaitCaughtUp(t)
		r.Stop(t)
		if duplicates := w.Verify(t); duplicates != 0 {
			t.Errorf("duplicates = %d", duplicates)
		}
	})
}
