package proof

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// part is a partition on a server whose WAL grows by ten with each look, and whose slot is at
// confirmed, or at follows behind the end.
type part struct {
	did       []string
	end       wal.LSN
	stays     wal.LSN // of the slot; zero: it follows
	holds     bool
	lockFails error
	released  int
}

func (p *part) Lineage() wal.Lineage { return wal.Lineage{SystemID: "1", Timeline: 1} }

func (p *part) Fence(context.Context) (wal.LSN, error) {
	p.did = append(p.did, "fence")
	p.end += 10
	return p.end, nil
}

func (p *part) Slots(context.Context, []string) ([]Slot, error) {
	p.did = append(p.did, "slots")
	at := p.end
	if p.stays != 0 {
		at = min(at, p.stays)
	}
	return []Slot{{Name: "a", Confirmed: at, Active: true}}, nil
}

func (p *part) Nudge(context.Context) error { p.did = append(p.did, "nudge"); return nil }

func (p *part) Lock(context.Context) error {
	p.did = append(p.did, "lock")
	return p.lockFails
}

func (p *part) Holds(context.Context, Waiting) (bool, error) {
	p.did = append(p.did, "holds")
	return p.holds, nil
}

func (p *part) Remove(context.Context) error { p.did = append(p.did, "remove"); return nil }

func (p *part) Release() { p.released++; p.did = append(p.did, "release") }

// kept are records of a slot of which all is known; they note when they are read.
type keptRecords struct {
	part    *part
	waiting Waiting
	before  stored.Before
	silent  bool // the brokers do not answer
}

func (k *keptRecords) Kept(ctx context.Context, _ []Slot) (*Kept, error) {
	k.part.did = append(k.part.did, "kept")
	if k.silent {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(75 * time.Second):
		}
	}
	origin := wal.Origin{SystemID: "1", Timeline: 1}
	return &Kept{Here: origin, Delivered: map[string]wal.LSN{"a": k.part.end}, Before: map[string]stored.BeforeSlot{
		"a": {System: "1", Timeline: 1, Slot: "a", OID: 7, Before: k.before, Point: 1, Positions: stored.Promises},
	}}, nil
}

func (k *keptRecords) Waiting(context.Context) (Waiting, error) {
	k.part.did = append(k.part.did, "letters")
	return k.waiting, nil
}

func remove(t *testing.T, p *part, k keptRecords) (held bool, steps string, err error) {
	t.Helper()
	k.part = p
	held, err = New(Config{Table: 7, Slots: []string{"a"}, Positions: stored.Promises}, &k).Remove(t.Context(), p)
	return held, strings.Join(slices.Compact(p.did), " "), err
}

// Each order is needed: the insert position is read after the lock, the letters after the wait,
// and nothing is removed before.
func TestRemove_ProvesBehindTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, steps, err := remove(t, &part{}, keptRecords{before: stored.BeforeNone})
		if want := "fence slots lock fence slots kept fence letters holds remove release"; held || err != nil || steps != want {
			t.Errorf("%t, %v: %s, want %s", held, err, steps, want)
		}
	})
}

func TestRemove_KeepsThePartition(t *testing.T) {
	for name, tt := range map[string]struct {
		part   part
		kept   keptRecords
		reason string
		held   bool
		steps  string
		within time.Duration
	}{
		"a letter waits":            {part{holds: true}, keptRecords{before: stored.BeforeNone}, "", true, "fence slots lock fence slots kept fence letters holds release", time.Second},
		"letters could not be held": {part{}, keptRecords{before: stored.BeforeNone, waiting: Waiting{Full: true}}, fault.ReasonDeadLettersFull, false, "fence slots lock fence slots kept fence letters release", time.Second},
		"rows before the slot":      {part{}, keptRecords{before: stored.BeforeUnknown}, fault.ReasonBeforeSlotUnknown, false, "fence slots lock fence slots kept fence release", time.Second},
		"the slot is behind":        {part{stays: 5}, keptRecords{before: stored.BeforeNone}, fault.ReasonSlotBehind, false, "fence slots nudge slots", defaultWait + time.Second},
		"it stops behind the lock":  {part{stays: 15}, keptRecords{before: stored.BeforeNone}, fault.ReasonPartitionBusy, false, "fence slots lock fence slots nudge slots release", lockedWait + time.Second},
		"the brokers are silent":    {part{}, keptRecords{before: stored.BeforeNone, silent: true}, fault.ReasonPartitionBusy, false, "fence slots lock fence slots kept release", lockedWait + time.Second},
		"its writers go on":         {part{lockFails: &fault.Error{Reason: fault.ReasonPartitionBusy}}, keptRecords{before: stored.BeforeNone}, fault.ReasonPartitionBusy, false, "fence slots lock release", time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			held, steps, err := remove(t, &tt.part, tt.kept)
			if held != tt.held || reasonOf(err) != tt.reason || steps != tt.steps || time.Since(began) > tt.within {
				t.Errorf("%s: %t, %v after %s: %s, want %s", name, held, err, time.Since(began), steps, tt.steps)
			}
		})
	}
}
