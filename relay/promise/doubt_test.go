package promise

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

type ledgerMap map[string][]byte

func (l ledgerMap) Read(_ context.Context, suffix string) (map[string][]byte, error) {
	found := maps.Clone(l)
	maps.DeleteFunc(found, func(key string, _ []byte) bool { return !strings.HasSuffix(key, suffix) })
	return found, nil
}

func (l ledgerMap) Write(_ context.Context, key string, value []byte) error {
	l[key] = value
	return nil
}

func (l ledgerMap) Close() {}

// The first session after the loss has another checkpoint written, so the next one finds none that is gone. What a
// person has declared since then stays.
func TestAbsent_TakesBackOnceWhatIsKnownBeforeALoss(t *testing.T) {
	l, d := ledgerMap{}, Doubts{}
	tables := []*wal.Relation{{OID: 7}}
	write := func(known stored.Before) {
		rec := stored.BeforeSlot{System: "1", Timeline: 1, Slot: "s", Table: "public.outbox", OID: 7, Before: known, Point: 100, Positions: stored.Checkpoints, At: time.Unix(1000, 0)}
		l[stored.BeforeSlotKey("1", "s", 7)] = rec.Encode()
	}
	begins := func(gone string) stored.Before {
		t.Helper()
		var checkpoint []byte
		if gone != "" {
			checkpoint = []byte(gone)
		}
		if err := d.Absent(t.Context(), time.Second, l, "1", "s", "1.0", 200, checkpoint, tables); err != nil {
			t.Fatal(err)
		}
		rec, err := stored.ParseBeforeSlot(l[stored.BeforeSlotKey("1", "s", 7)])
		if err != nil {
			t.Fatal(err)
		}
		return rec.Before
	}
	write(stored.BeforeSent)
	if got := begins(""); got != stored.BeforeSent {
		t.Errorf("without a loss: %v", got)
	}
	if got := begins("a"); got != stored.BeforeUnknown {
		t.Errorf("with a loss: %v", got)
	}
	write(stored.BeforeDeclared)
	for _, gone := range []string{"a", "", "a"} {
		if got := begins(gone); got != stored.BeforeDeclared {
			t.Errorf("declared, and then a session with the loss %q: %v", gone, got)
		}
	}
	if got := begins("b"); got != stored.BeforeUnknown {
		t.Errorf("with another loss: %v", got)
	}
}
