package proof

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestTID_IsReadAsTheServerPrintsIt(t *testing.T) {
	for text, want := range map[string]TID{"(0,1)": {0, 1}, "(4294967295,65535)": {1<<32 - 1, 1<<16 - 1}} {
		if got, err := ParseTID(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0,1", "(0,1", "0,1)", "(0)", "(,)", "(0,65536)", "(4294967296,1)", "(-1,1)", "(0, 1)", "(0,1);"} {
		if got, err := ParseTID(text); err == nil || !strings.Contains(err.Error(), "ctid") {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

func TestWaiting_HoldsTheRowsOfItsLetters(t *testing.T) {
	rows := []Row{{ID: "a"}, {ID: "b"}, {NoID: true}, {ID: ""}} // an empty id is no missing one
	for name, tt := range map[string]struct {
		waiting Waiting
		want    string
	}{
		"none":             {Waiting{}, "a b NULL ''"},
		"one":              {Waiting{IDs: map[string]struct{}{"b": {}, "z": {}}}, "a NULL ''"},
		"one without id":   {Waiting{NoID: true}, "a b ''"},
		"one of empty id":  {Waiting{IDs: map[string]struct{}{"": {}}}, "a b NULL"},
		"of every sort":    {Waiting{IDs: map[string]struct{}{"": {}, "a": {}, "b": {}}, NoID: true}, ""},
		"of any row":       {Waiting{All: true}, ""},
		"of another table": {Waiting{IDs: map[string]struct{}{"c": {}}}, "a b NULL ''"},
	} {
		var got []string
		for _, r := range tt.waiting.without(rows) {
			switch {
			case r.NoID:
				got = append(got, "NULL")
			case r.ID == "":
				got = append(got, "''")
			default:
				got = append(got, r.ID)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q left, want %s", name, got, tt.want)
		}
	}
}

func TestSlotsUsable_NamesTheOneThatIsFurthestBehind(t *testing.T) {
	slots := []Slot{{Name: "a", Confirmed: 100}, {Name: "b", Confirmed: 40}, {Name: "c", Confirmed: 60}, {Name: "foreign", Confirmed: 1, Lost: "wal_removed"}}
	names := []string{"a", "b", "c"}
	for fence, want := range map[wal.LSN]string{40: "", 41: "b", 100: "b", 101: "b"} {
		behind, err := slotsUsable(names, slots, fence)
		got := ""
		if behind != nil {
			got = behind.Name
		}
		if err != nil || got != want {
			t.Errorf("up to %s: %q, %v, want %q", fence, got, err, want)
		}
	}
	for reason, names := range map[string][]string{fault.ReasonSlotLost: {"a", "foreign"}, fault.ReasonSlotMissing: {"a", "none"}} {
		if _, err := slotsUsable(names, slots, 1); reasonOf(err) != reason {
			t.Errorf("%q: %v", names, err)
		}
	}
	if _, err := slotsUsable(nil, slots, 1); reasonOf(err) != fault.ReasonSlotMissing {
		t.Errorf("no slot at all proves: %v", err)
	}
}

// Whatever does not fit what the brokers keep is a reason to do nothing.
func TestCheckKept_RefusesWhatTheBrokersDoNotConfirm(t *testing.T) {
	cfg := Config{Table: 7, Slots: []string{"a", "b"}, Others: []string{"else"}, Positions: stored.Promises}
	slots := []Slot{{Name: "a", Confirmed: 100}, {Name: "b", Confirmed: 90}, {Name: "else", Confirmed: 1000}}
	here := wal.Origin{SystemID: "1", Timeline: 3, Forks: []wal.Fork{{Timeline: 1, At: 50}, {Timeline: 2, At: 70}}}
	sound := func() *Kept {
		kept := &Kept{Here: here, Delivered: map[string]wal.LSN{"a": 100, "b": 95}, Before: map[string]stored.BeforeSlot{}}
		for _, name := range cfg.Slots {
			kept.Before[name] = stored.BeforeSlot{System: "1", Timeline: 1, Slot: name, OID: 7, Before: stored.BeforeNone, Point: 50, Positions: stored.Promises, At: time.Unix(0, 0)}
		}
		return kept
	}
	record := func(change func(*stored.BeforeSlot)) func(*Kept) {
		return func(k *Kept) {
			b := k.Before["b"]
			change(&b)
			k.Before["b"] = b
		}
	}
	if err := cfg.checkKept(here.Lineage(), slots, sound(), 200); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		spoil  func(*Kept)
		reason string
	}{
		"another server":            {func(k *Kept) { k.Here.SystemID = "2" }, fault.ReasonForeignServer},
		"another timeline":          {func(k *Kept) { k.Here.Timeline = 4 }, fault.ReasonForeignServer},
		"a slot that is ahead":      {func(k *Kept) { k.Delivered["b"] = 89 }, fault.ReasonSlotMoved},
		"a position beyond the WAL": {func(k *Kept) { k.Delivered["b"] = 201 }, fault.ReasonSlotMoved},
		"a slot without a position": {func(k *Kept) { delete(k.Delivered, "a") }, fault.ReasonBeforeSlotUnknown},
		"a slot without a record":   {func(k *Kept) { delete(k.Before, "a") }, fault.ReasonBeforeSlotUnknown},
		"rows that nobody sent":     {record(func(b *stored.BeforeSlot) { b.Before = stored.BeforeUnknown }), fault.ReasonBeforeSlotUnknown},
		"rows of another pipeline": {func(k *Kept) {
			k.Before["else"] = stored.BeforeSlot{System: "1", Timeline: 3, Slot: "else", OID: 7, Before: stored.BeforeUnknown, Point: 80, Positions: stored.Checkpoints}
		}, fault.ReasonBeforeSlotUnknown},
		"another table":             {record(func(b *stored.BeforeSlot) { b.OID = 8 }), fault.ReasonBeforeSlotUnknown},
		"another slot":              {record(func(b *stored.BeforeSlot) { b.Slot = "a" }), fault.ReasonBeforeSlotUnknown},
		"a record of elsewhere":     {record(func(b *stored.BeforeSlot) { b.System = "2" }), fault.ReasonBeforeSlotUnknown},
		"another kind of positions": {record(func(b *stored.BeforeSlot) { b.Positions = stored.Checkpoints }), fault.ReasonBeforeSlotUnknown},
		"a slot from before it":     {record(func(b *stored.BeforeSlot) { b.Timeline, b.Point = 3, 91 }), fault.ReasonBeforeSlotUnknown},
		"behind the first fork":     {record(func(b *stored.BeforeSlot) { b.Point = 51 }), fault.ReasonBeforeSlotUnknown},
		"a timeline to come":        {record(func(b *stored.BeforeSlot) { b.Timeline = 4 }), fault.ReasonBeforeSlotUnknown},
	} {
		kept := sound()
		tt.spoil(kept)
		err := cfg.checkKept(here.Lineage(), slots, kept, 200)
		if reasonOf(err) != tt.reason {
			t.Errorf("%s: %v, want %s", name, err, tt.reason)
		}
		// Each of the slots exists, and `backfill` without --late would be refused.
		if reasonOf(err) == fault.ReasonBeforeSlotUnknown && !strings.Contains(err.Error(), "send them (`cdc-relay backfill --late`)") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The timeline of the record's point is one that the server's history left behind the point.
func TestCheckKept_TakesARecordOfATimelineBefore(t *testing.T) {
	cfg := Config{Table: 7, Slots: []string{"a"}, Positions: stored.Checkpoints}
	here := wal.Origin{SystemID: "1", Timeline: 3, Forks: []wal.Fork{{Timeline: 1, At: 50}, {Timeline: 2, At: 70}}}
	for timeline, points := range map[int32]map[wal.LSN]bool{1: {50: true, 51: false}, 2: {70: true, 71: false}, 3: {90: true, 91: false}} {
		for point, want := range points {
			kept := &Kept{Here: here, Delivered: map[string]wal.LSN{"a": 90}, Before: map[string]stored.BeforeSlot{
				"a": {System: "1", Timeline: timeline, Slot: "a", OID: 7, Before: stored.BeforeSent, Point: point, Positions: stored.Checkpoints},
			}}
			if err := cfg.checkKept(here.Lineage(), []Slot{{Name: "a", Confirmed: 90}}, kept, 90); (err == nil) != want {
				t.Errorf("%s on timeline %d: %v", point, timeline, err)
			}
		}
	}
}

// Two standbys were promoted under one number. What lies up to where the first of them left their history is
// the same on both.
func TestCheckKept_TakesNoRecordOfAnotherTimelineOfTheSameNumber(t *testing.T) {
	cfg := Config{Table: 7, Slots: []string{"a"}, Positions: stored.Checkpoints}
	here := wal.Origin{SystemID: "1", Timeline: 3, Forks: []wal.Fork{{Timeline: 1, At: 50}, {Timeline: 2, At: 70}}}
	for _, tt := range []struct {
		timeline     int32
		began, point wal.LSN
		want         bool
	}{
		{3, 0, 80, true}, {3, 70, 80, true}, // not recorded, and the same
		{3, 60, 80, false}, {3, 60, 61, false}, {3, 60, 60, true},
		{3, 75, 80, false}, {3, 75, 71, false}, {3, 75, 70, true},
		{2, 50, 60, true}, {2, 40, 60, false}, {2, 40, 40, true},
	} {
		kept := &Kept{Here: here, Delivered: map[string]wal.LSN{"a": 90}, Before: map[string]stored.BeforeSlot{
			"a": {System: "1", Timeline: tt.timeline, Began: tt.began, Slot: "a", OID: 7, Before: stored.BeforeSent, Point: tt.point, Positions: stored.Checkpoints},
		}}
		if err := cfg.checkKept(here.Lineage(), []Slot{{Name: "a", Confirmed: 90}}, kept, 90); (err == nil) != tt.want {
			t.Errorf("%s on timeline %d that began at %s: %v", tt.point, tt.timeline, tt.began, err)
		}
	}
}

func TestPass_AsksForNothingThatItDoesNotNeed(t *testing.T) {
	// Nothing is named, so nobody is asked anything else.
	out, err := New(Config{}, nil).Pass(t.Context(), emptyTable{})
	if err != nil || out != (Outcome{}) {
		t.Errorf("%+v, %v", out, err)
	}
	// Rows that were left out are recorded nowhere, so not even their names are asked for.
	_, err = New(Config{Skipped: true}, nil).Pass(t.Context(), nil)
	if e, ok := errors.AsType[*fault.Error](err); !ok || e.Reason != fault.ReasonRowsSkipped || !strings.Contains(err.Error(), "maintenance.skipped") {
		t.Errorf("rows are skipped: %v", err)
	}
	if _, err := New(Config{Skipped: true, SkippedAreDelivered: true}, nil).Pass(t.Context(), emptyTable{}); err != nil {
		t.Error(err)
	}
}

// emptyTable has no row; other calls panic.
type emptyTable struct{ Session }

func (emptyTable) Name(context.Context) ([]Row, wal.LSN, error) { return nil, 0, nil }
