package status

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestBudget_TellsHowLongTheWALLasts(t *testing.T) {
	const mib = 1 << 20
	snapshot := func(end, confirmed wal.LSN, safe int64) *watch.Snapshot {
		s := &watch.Snapshot{WALEnd: end, Slot: catalog.SlotInfo{Confirmed: confirmed, Restart: confirmed}}
		if safe >= 0 {
			s.Slot.SafeWAL = &safe
		}
		return s
	}
	var b budget
	begun := time.Unix(1000, 0)
	if _, known := b.lasts(mib); known {
		t.Error("a time is known before the pace is")
	}
	var told []time.Duration
	// 1 MiB a second, 100 GiB to go: about 28 hours until it is lost.
	at := func(i int) time.Time { return begun.Add(time.Duration(i) * time.Second) }
	const room = 100 << 30
	for i := 0; i < room/mib; i += 60 {
		if w := b.observe(at(i), snapshot(wal.LSN(i*mib+1), 1, room-int64(i*mib))); w != nil {
			told = append(told, w.lasts)
			if w.pace < 0.9*mib || w.pace > 1.1*mib {
				t.Fatalf("pace %f", w.pace)
			}
		}
	}
	if len(told) < 8 || told[0] > firstWarning || told[0] < firstWarning-2*time.Minute {
		t.Fatalf("told %v", told)
	}
	for i := 1; i < len(told); i++ {
		if told[i] > told[i-1]/2+time.Minute {
			t.Errorf("told %v: more often than at each half", told)
		}
	}

	// A slot that follows is never warned of, however little room the limit gives.
	b = budget{}
	for i := range 1000 {
		if w := b.observe(at(i), snapshot(wal.LSN(i*100*mib+2), wal.LSN(i*100*mib+1), 64*mib)); w != nil {
			t.Fatal("a slot that moves is warned of")
		}
	}
	if lasts, known := b.lasts(64 * mib); !known || lasts > 2*time.Second {
		t.Errorf("64 MiB at 100 MiB/s last %s", lasts)
	}

	// Without a limit each doubling is told.
	b = budget{}
	n := 0
	for i := range 40_000 {
		if b.observe(at(i), snapshot(wal.LSN(i*mib+2), 1, -1)) != nil {
			n++
		}
	}
	if n != 6 {
		t.Errorf("%d warnings for 39 GiB without a limit, want 6", n)
	}

	// A server that went back is another one.
	b.observe(at(50_000), snapshot(5, 5, -1))
	if b.pace != 0 {
		t.Error("the pace of another server is kept")
	}
}
