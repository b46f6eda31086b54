package delivery

import (
	"context"
	"testing"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
)

// holding is a sink whose topic has a checkpoint.
type holding struct {
	noting
	value []byte
}

func (h *holding) Open(context.Context, sink.Holder) ([]byte, error) { return h.value, nil }

// The server's disk was put back, and the commit of the checkpoint that says so failed. Until the next start the
// server's WAL grows past the old checkpoint, with rows that nobody has delivered.
func TestExactly_ALossIsRememberedUntilTheTopicHasAnotherCheckpoint(t *testing.T) {
	d := opened(Config{Guarantee: ExactlyOnce, Resume: &resume.Config{Slot: "orders"}})
	d.start.Origin = wal.Origin{SystemID: "7", Timeline: 1}
	for _, c := range []struct{ checkpoint, walEnd, covered wal.LSN }{{300, 280, 250}, {300, 310, 250}, {305, 310, 305}} {
		at := stored.Position{System: "7", Slot: "orders", Timeline: 1, End: c.checkpoint}
		d.start.LSN, d.start.End = 250, c.walEnd
		d.sink = &holding{value: at.Encode()}
		if err := d.takeOver(t.Context()); err != nil {
			t.Fatal(err)
		}
		if x := d.guarantee.(*exactlyOnce); x.resumedAt.End != c.covered {
			t.Errorf("checkpoint at %d, WAL to %d: the start covers what commits before %d, want %d", c.checkpoint, c.walEnd, x.resumedAt.End, c.covered)
		}
	}
}

// The server's disk was put back, and the commit of the checkpoint that says so was not confirmed. The next
// start finds that checkpoint, and has committed none that is beyond it.
func TestExactly_AnUnconfirmedStepBackIsNoLostCheckpoint(t *testing.T) {
	d := opened(Config{Guarantee: ExactlyOnce, Resume: &resume.Config{Slot: "orders"}})
	d.shared.committed.Store(&stored.Position{System: "7", Slot: "orders", Timeline: 1, End: 300})
	d.start.Origin = wal.Origin{SystemID: "7", Timeline: 1}
	for _, c := range []struct{ checkpoint, slot, walEnd wal.LSN }{{300, 250, 280}, {250, 250, 310}} {
		at := stored.Position{System: "7", Slot: "orders", Timeline: 1, End: c.checkpoint}
		d.start.LSN, d.start.End = c.slot, c.walEnd
		d.sink = &holding{value: at.Encode()}
		if err := d.takeOver(t.Context()); err != nil {
			t.Fatalf("with the checkpoint at %d: %v", c.checkpoint, err)
		}
		if x := d.guarantee.(*exactlyOnce); x.resumedAt.End != 250 {
			t.Errorf("with the checkpoint at %d the start covers what commits before %d", c.checkpoint, x.resumedAt.End)
		}
	}
}
