package delivery

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

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

// resumed is a delivery whose topic has a checkpoint that covers the slot's rows up to a transaction.
func resumed(t *testing.T) (*Delivery, *wal.Txn) {
	t.Helper()
	last := &wal.Txn{XID: 7, Commit: 280, End: 290, Time: time.Unix(1000, 0)}
	at := stored.Position{System: "7", Slot: "orders", Timeline: 1, End: 250}
	at.Advance(300, &wal.Row{Txn: last, Ordinal: 1})
	d := opened(Config{Guarantee: ExactlyOnce, Resume: &resume.Config{Slot: "orders"}})
	d.start.Origin, d.start.LSN, d.start.End = wal.Origin{SystemID: "7", Timeline: 1}, 250, 400
	d.sink = &holding{value: at.Encode()}
	if err := d.takeOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d, last
}

// The server sends what the checkpoint covers. That is skipped, and not confirmed before the stream has shown
// the last transaction of it, whatever is committed meanwhile.
func TestExactly_WhatIsSkippedIsConfirmedOnceItIsProven(t *testing.T) {
	d, last := resumed(t)
	earlier := &wal.Txn{XID: 6, Commit: 260, End: 270, Time: last.Time}
	d.guarantee.(*exactlyOnce).committed(&stored.Position{End: 300})
	for _, c := range []struct {
		batch   *wal.Batch
		confirm wal.LSN
		want    wal.LSN
	}{
		{&wal.Batch{Through: 255}, 255, 250},
		{&wal.Batch{Rows: []wal.Row{{Txn: earlier, Ordinal: 1}}, Through: 270}, 270, 250},
		{&wal.Batch{Rows: []wal.Row{{Txn: last, Ordinal: 1}}, Through: 290}, 290, 290},
		{&wal.Batch{Through: 350}, 350, 300},
	} {
		if err := d.Begin(c.batch); err != nil {
			t.Fatal(err)
		}
		if got := d.Limit(c.confirm); got != c.want {
			t.Errorf("after the batch up to %s the server gets %s, want %s", c.batch.Through, got, c.want)
		}
	}
}

// The server's disk was put back, and it has written other rows past the checkpoint since.
func TestExactly_AStreamOfAnotherHistoryIsSentFromTheSlotOn(t *testing.T) {
	d, last := resumed(t)
	other := &wal.Txn{XID: 7, Commit: 280, End: 290, Time: last.Time.Add(time.Second)}
	err := d.Begin(&wal.Batch{Rows: []wal.Row{{Txn: other, Ordinal: 1}}, Through: 290})
	if _, again := RestartsAtOnce(err); !again || !errors.Is(err, resume.ErrOtherHistory) {
		t.Fatalf("the session goes on with %v", err)
	}
	if got := d.Limit(290); got != 250 {
		t.Errorf("the server gets %s of rows that were skipped", got)
	}
	if err := d.takeOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if x := d.guarantee.(*exactlyOnce); x.resumedAt.Covers(260, 1) || x.held.Load() != 0 || !d.shared.Loss.Unseen {
		t.Errorf("the next session begins with %+v, %+v", x.resumedAt, d.shared.Loss)
	}
	if err := d.Begin(&wal.Batch{Rows: []wal.Row{{Txn: other, Ordinal: 1}}, Through: 290}); err != nil {
		t.Errorf("the next session ends too: %v", err)
	}
}

// What is known of the rows before the slot is taken back between takeOver and the stream (promise.Doubts). If the
// relay is killed before that, the next start has to see the loss too.
func TestExactly_TheTopicTellsOfALossUntilTheStreamBegins(t *testing.T) {
	d := opened(Config{Guarantee: ExactlyOnce, Resume: &resume.Config{Slot: "orders"}})
	at := stored.Position{System: "7", Slot: "orders", Timeline: 1, End: 300}
	to := &holding{value: at.Encode()}
	d.start.Origin, d.start.LSN, d.start.End, d.sink = wal.Origin{SystemID: "7", Timeline: 1}, 250, 280, to
	if err := d.takeOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(to.calls) > 0 {
		t.Errorf("before the stream begins the sink got %q", to.calls)
	}
	_, stop := d.Renewal()
	defer stop()
	if want := []string{"position 250"}; !slices.Equal(to.calls, want) {
		t.Errorf("when the stream begins the sink got %q, want %q", to.calls, want)
	}
}
