package deadletter

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// Each filter alone takes what has its value, and nothing else.
func TestFilter_SelectsByEachOfItsFields(t *testing.T) {
	l := &Letter{Reason: "parked", Table: "public.outbox", Record: record.Record{Topic: "orders", Key: []byte("k")}}
	for name, f := range map[string]struct{ same, other Filter }{
		"reason": {Filter{Reason: "parked"}, Filter{Reason: "route"}},
		"table":  {Filter{Table: "public.outbox"}, Filter{Table: "public.other"}},
		"topic":  {Filter{Topic: "orders"}, Filter{Topic: "others"}},
		"key":    {Filter{Key: []byte("k")}, Filter{Key: []byte("j")}},
	} {
		if !f.same.matches(l) || f.other.matches(l) {
			t.Errorf("by its own %s: %t, by another: %t", name, f.same.matches(l), f.other.matches(l))
		}
	}
}

// The row that parked a key and comes again follows itself: its letter may not be there.
func TestParked_FollowsTheRowThatParkedItsKey(t *testing.T) {
	p := NewParked(10, "")
	group := KeyGroup("orders", []byte("k"))
	first := ID{Place: wal.Place{Commit: 100, Ordinal: 2}}
	if err := p.Park(group, first); err != nil {
		t.Fatal(err)
	}
	for id, follows := range map[ID]bool{first: true, {Place: wal.Place{Commit: 100, Ordinal: 1}}: false, {Place: wal.Place{Commit: 100, Ordinal: 3}}: true} {
		if p.Follow(group, id) != follows {
			t.Errorf("row %s follows: %t", id.Place, !follows)
		}
	}
}

// A letter has the headers that say something, and no others.
func TestWrap_LeavesOutWhatDoesNotApply(t *testing.T) {
	bare := Wrap(newRecord(0x10, 1, "k", "v"), topic, cause)
	for _, name := range []string{HeaderNth, HeaderTimeline, HeaderBegan, HeaderMissing, HeaderPartition, HeaderTimestamp, HeaderValueSize} {
		if headerAt(bare.Headers, name) >= 0 {
			t.Errorf("a letter without it has the header %s", name)
		}
	}
	second := newRecord(0x10, 1, "k", "v")
	second.Nth = 1
	c := cause
	c.Timeline, c.Began, c.Missing = 2, 0x50, []string{router.PartValue}
	full := Wrap(second, topic, c)
	for _, name := range []string{HeaderNth, HeaderTimeline, HeaderBegan, HeaderMissing} {
		if headerAt(full.Headers, name) < 0 {
			t.Errorf("no header %s", name)
		}
	}
	if l, _, err := Parse(message(full, 0, 0)); err != nil || l.Timeline != 2 || l.Origin.Began != 0x50 {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestLetter_NamesItsEvent(t *testing.T) {
	l, _, err := Parse(message(Wrap(newRecord(0x10, 1, "k", "v"), topic, cause), 0, 0))
	if err != nil || l.EventID() != "e1" {
		t.Errorf("event %q: %v", l.EventID(), err)
	}
}

// What is as long as allowed is kept as it is.
func TestLetter_KeepsWhatIsAsLongAsAllowed(t *testing.T) {
	text := strings.Repeat("x", maxMessage)
	if short(errors.New(text)) != text {
		t.Error("a message was cut that is as long as allowed")
	}
	rec := newRecord(0x10, 1, "k", "v")
	rec.Headers[0].Value = []byte(text)
	letter := Wrap(rec, topic, cause)
	for Strip(&letter) {
		continue
	}
	if at := headerAt(letter.Headers, "id"); at < 0 || string(letter.Headers[at].Value) != text {
		t.Error("an event's id was dropped that is as long as allowed")
	}
}

// Records that Kafka stores alike have one digest, and no others.
func TestDigest_TellsRecordsApart(t *testing.T) {
	edge := strings.Repeat("\xff", 8) // between parts, if their lengths were not there
	seen := map[digest]int{}
	for i, rec := range []record.Record{
		{Topic: "t"},
		{Topic: "t", Key: []byte{}},
		{Topic: "t", Value: []byte{}},
		{Topic: "t", Key: []byte("k"), Value: []byte("v")},
		{Topic: "t", Key: []byte("kv"), Value: []byte{}},
		{Topic: "t", Key: []byte("k" + edge + "v"), Value: []byte("w")},
		{Topic: "t", Key: []byte("k"), Value: []byte("v" + edge + "w")},
		{Topic: "t", Partition: 1},
		{Topic: "t", Timestamp: time.Unix(1, 0)},
		{Topic: "t", Headers: []record.Header{{Key: "h"}}},
		{Topic: "t", Headers: []record.Header{{Key: "h", Value: []byte{}}}},
	} {
		if other, ok := seen[digestOf(&rec)]; ok {
			t.Errorf("records %d and %d have the same digest", other, i)
		}
		seen[digestOf(&rec)] = i
	}
}

// A second reading finds the letters that are asked for, and what happened to them meanwhile.
func TestFilling_SeesWhatIsDoneWithSinceTheFirstReading(t *testing.T) {
	l := newLog(Filter{})
	l.letter(0x10, "a")
	l.letter(0x20, "a")
	l.letter(0x30, "b")
	entries := l.backlog.Entries[:2]
	f := newFilling(entries)
	m := Marker{Source: "7000/5/orders", Group: KeyGroup("orders", []byte("a")), Outcome: Sent, Offsets: NewOffsets([]int64{0})}
	for offset, rec := range []record.Record{
		Wrap(newRecord(0x10, 1, "a", "v1"), topic, cause), Wrap(newRecord(0x20, 1, "a", "v2"), topic, cause), Wrap(newRecord(0x30, 1, "b", "v3"), topic, cause), m.Record(topic, []byte("a")),
	} {
		if err := f.add(message(rec, 0, int64(offset))); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.found) != 2 || string(f.found[Location{0, 1}].Record.Value) != "v2" {
		t.Errorf("found %+v", f.found)
	}
	if entries[0].Done != Sent || entries[1].Done != "" {
		t.Errorf("the first is %q and the second is %q", entries[0].Done, entries[1].Done)
	}
}

// The first record of a row may be counted, although we do not write that.
func TestParse_CountsFromZero(t *testing.T) {
	wrapped := Wrap(newRecord(0x10, 1, "k", "v"), topic, cause)
	wrapped.Headers = append(wrapped.Headers, record.Header{Key: HeaderNth, Value: []byte("0")})
	if l, _, err := Parse(message(wrapped, 0, 0)); err != nil || l.Nth != 0 {
		t.Errorf("%+v, %v", l, err)
	}
}

// A letter of a key waits for ever, and those after it are discarded one after the other.
// Each marker covers what the one before did.
func TestSpan_RemembersWhatIsCoveredOnce(t *testing.T) {
	s := span{first: 0, last: 1000}
	for last := int64(1); last <= 500; last++ {
		if s.cover(Offsets{{1, last}}) {
			t.Fatal("nothing waits although the first letter does")
		}
	}
	if len(s.done) != 1 {
		t.Errorf("%d ranges are kept, want 1", len(s.done))
	}
	if s.cover(Offsets{{700, 800}}); len(s.done) != 2 {
		t.Errorf("%d ranges are kept, want 2", len(s.done))
	}
	if s.cover(Offsets{{501, 699}, {801, 1000}}); len(s.done) != 1 {
		t.Errorf("%d ranges are kept, want 1", len(s.done))
	}
	if !s.cover(Offsets{{0, 0}}) {
		t.Error("something waits although all is covered")
	}
}

// Many pipelines may share the topic. A relay keeps the keys of its own slot alone, of
// whichever system: it reads the topic before it knows its database.
func TestParked_KeepsNoKeysOfOtherSlots(t *testing.T) {
	p := NewParked(10, "orders")
	for i, source := range []string{"7000/5/billing", "7000/5/orders", "8000/5/orders", "8000/5/orders_2"} {
		rec := Wrap(newRecord(0x10, 1, "k", "v"), topic, Cause{Reason: "route", Err: errors.New("no"), Source: source, Timeline: 1})
		m := topics.Message{Topic: topic, Offset: int64(i), Key: rec.Key, Value: rec.Value, Headers: rec.Headers}
		p.Read(&m)
	}
	if len(p.others) != 2 || p.others["7000/5/orders"] == nil || p.others["8000/5/orders"] == nil {
		t.Errorf("keeps keys of %d sources: %v", len(p.others), p.others)
	}
	p.Source("8000/5/orders")
	if p.Len() != 1 {
		t.Errorf("%d keys of its own, want 1", p.Len())
	}
}
