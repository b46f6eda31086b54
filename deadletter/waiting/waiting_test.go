package waiting

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

const own = "7/slot"

func newSet() *Set { return New(func(source string) bool { return source == own }) }

// oids are those of the tables of these tests.
var oids = map[string]uint32{"public.outbox": 1, "public.other": 2, "public.old": 3}

// known is a letter with all that the relay writes of its table, whose ids are of column id.
func known(source, name, event string, offset int64, more ...record.Header) *topics.Message {
	return message(source, name, event, offset, append(of(oids[name], "id", 2950), more...)...)
}

// named is a table with that name.
func named(name string) *Table {
	schema, name, _ := strings.Cut(name, ".")
	return &Table{Name: wal.Table{Schema: schema, Name: name}, OID: oids[schema+"."+name], ID: record.IDColumn{Name: "id", Type: 2950}, Others: []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: "other"}}}
}

// message is a letter of table at an offset; its event id is empty where it has none.
func message(source, table, event string, offset int64, more ...record.Header) *topics.Message {
	m := &topics.Message{Topic: "dead", Offset: offset, Key: []byte("k")}
	if event != "" {
		m.Headers = append(m.Headers, record.Header{Key: "id", Value: []byte(event)})
	}
	for _, h := range [][2]string{
		{deadletter.HeaderReason, "encode"}, {deadletter.HeaderTopic, "orders"}, {deadletter.HeaderTable, table}, {deadletter.HeaderLSN, fmt.Sprintf("0/%X", 16+offset)},
		{deadletter.HeaderSeq, "1"}, {deadletter.HeaderSource, source}, {deadletter.HeaderGroup, deadletter.KeyGroup("orders", []byte("k")).String()},
	} {
		m.Headers = append(m.Headers, record.Header{Key: h[0], Value: []byte(h[1])})
	}
	m.Headers = append(m.Headers, more...)
	return m
}

func marker(source string, at int64, offsets ...int64) *topics.Message {
	m := deadletter.Marker{Source: source, Group: deadletter.KeyGroup("orders", []byte("k")), Outcome: deadletter.Sent, Offsets: deadletter.NewOffsets(offsets)}
	rec := m.Record("dead", []byte("k"))
	return &topics.Message{Topic: "dead", Offset: at, Key: rec.Key, Headers: rec.Headers}
}

func held(s *Set, table string) string {
	h := s.Of(named(table))
	text := strings.Join(slices.Sorted(maps.Keys(h.IDs)), " ")
	return fmt.Sprintf("%d: %s, %t, %t, %t", h.Letters, text, h.NoID, h.Any(), s.Full())
}

func TestSet_HoldsTheRowsOfLettersThatWait(t *testing.T) {
	s := newSet()
	s.Read(known(own, "public.outbox", "a", 0))
	s.Read(known(own, "public.outbox", "b", 1))
	s.Read(known("8/slot", "public.outbox", "foreign", 2))
	s.Read(known(own, "public.other", "c", 3))
	s.Read(&topics.Message{Topic: "dead", Offset: 4, Value: []byte("no letter")})
	if got, want := held(s, "public.outbox"), "2: a b, false, false, false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.Read(marker("8/slot", 5, 0, 1)) // of another source
	s.Read(marker(own, 6, 0))
	if got, want := held(s, "public.outbox"), "1: b, false, false, false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.Read(known(own, "public.outbox", "a", 7)) // rejected again
	s.Read(marker(own, 8, 1, 3, 7))
	if got, want := held(s, "public.outbox")+held(s, "public.other"), "0: , false, false, false0: , false, false, false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if s.count != 0 || s.bytes != 0 || len(s.groups) != 0 {
		t.Errorf("%d letters of %d bytes in %d groups are counted", s.count, s.bytes, len(s.groups))
	}
	s.Read(known(own, "public.outbox", "d", 9))
	s.Read(nil)
	if got, want := held(s, "public.outbox"), "0: , false, false, false"; got != want {
		t.Errorf("of another topic: %s, want %s", got, want)
	}
}

// A letter without an event id may be of a row without one, of an empty one, or of any row where
// it was too large for its headers.
func TestSet_SaysWhatALetterWithoutAnIDMayBeOf(t *testing.T) {
	s := newSet()
	s.Read(known(own, "public.outbox", "", 0))
	if got, want := held(s, "public.outbox"), "1: , true, false, false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if h := s.Of(named("public.outbox")); len(h.IDs) != 1 {
		t.Errorf("an empty id is not held: %v", h.IDs)
	}
	s.Read(known(own, "public.outbox", "", 1, record.Header{Key: deadletter.HeaderMissing, Value: []byte("value,headers")}))
	if got, want := held(s, "public.outbox"), "2: , true, true, false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What does not fit is not known to be done with later, so a set that was full stays so.
func TestSet_IsFullForGood(t *testing.T) {
	s := newSet()
	s.limit = 2
	for i, id := range []string{"a", "b"} {
		s.Read(known(own, "public.outbox", id, int64(i)))
	}
	if s.Full() {
		t.Fatal("full with two of two")
	}
	s.Read(known(own, "public.outbox", "c", 2))
	s.Read(marker(own, 3, 0, 1, 2))
	if !s.Full() {
		t.Error("not full any more, although the third letter was left out")
	}
	for more, want := range map[int]bool{0: false, 1: true} {
		s = newSet()
		s.Read(message(own, "t", strings.Repeat("x", maxBytes-1+more), 0))
		if s.Full() != want {
			t.Errorf("full of %d bytes: %t", maxBytes+more, s.Full())
		}
	}
}

// Of a row with several letters the newest counts, and of a letter nothing is kept that may be of its row.
func TestSet_NamesTheNewestLetterOfARow(t *testing.T) {
	s := newSet()
	s.Read(known(own, "public.outbox", "a", 0))
	s.Read(known(own, "public.outbox", "b", 1))
	s.Read(known(own, "public.outbox", "a", 7))
	s.Read(known(own, "public.old", "c", 8))
	s.Read(known(own, "public.outbox", "", 9))
	found := s.Named(named("public.outbox"))
	if len(found) != 2 || found["a"].Offset != 7 || found["b"].Offset != 1 || found["a"].Reason != "encode" {
		t.Errorf("%+v", found)
	}
	// One row has two letters, as it had when the relay was killed before it confirmed the first.
	again := known(own, "public.outbox", "b", 1)
	again.Offset = 11
	s.Read(again)
	if found := s.Named(named("public.outbox")); found["b"].Offset != 11 {
		t.Errorf("%+v", found["b"])
	}
	s.Read(marker(own, 10, 7))
	if found := s.Named(named("public.outbox")); found["a"].Offset != 0 {
		t.Errorf("%+v", found)
	}
	for reason, want := range map[string]string{"unknown_topic": "unknown_topic", "the row has 4111 1111": anotherReason, "": anotherReason, strings.Repeat("a", 64): anotherReason} {
		if got := s.known(reason); got != want {
			t.Errorf("%q is kept as %q, want %q", reason, got, want)
		}
	}
	for i := range maxReasons {
		s.known(strings.Repeat("x", i%60+1) + string(rune('a'+i/60)))
	}
	if got := s.known("one_more"); got != anotherReason || len(s.reasons) != maxReasons {
		t.Errorf("%q, %d reasons are kept", got, len(s.reasons))
	}
}
