package waiting

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

func discards(at int64, offsets ...int64) *topics.Message {
	m := deadletter.Marker{Source: own, Group: deadletter.KeyGroup("orders", []byte("k")), Outcome: deadletter.Discarded, Offsets: deadletter.NewOffsets(offsets)}
	rec := m.Record("dead", []byte("k"))
	return &topics.Message{Topic: "dead", Offset: at, Key: rec.Key, Headers: rec.Headers}
}

func gone(s *Set, table string) string {
	ids, full := s.Discarded(named(table))
	return fmt.Sprintf("%s, %t", strings.Join(slices.Sorted(maps.Keys(ids)), " "), full)
}

func TestSet_RemembersDiscardedLettersUntilAnotherOneIsSent(t *testing.T) {
	s := newSet()
	for i, event := range []string{"a", "b", "", "c"} {
		s.Read(known(own, "public.outbox", event, int64(i)))
	}
	s.Read(known(own, "public.other", "d", 4))
	s.Read(discards(5, 0, 1, 2, 4))
	if got := gone(s, "public.outbox"); got != "a b, false" {
		t.Errorf("%s", got)
	}
	s.Read(marker(own, 6, 0, 1, 2, 3, 4)) // the others are done with already
	if got := gone(s, "public.outbox") + "; " + gone(s, "public.other"); got != "a b, false; d, false" {
		t.Errorf("%s", got)
	}
	s.Read(known(own, "public.outbox", "a", 7))
	s.Read(marker(own, 8, 7))
	if got := gone(s, "public.outbox"); got != "b, false" {
		t.Errorf("%s", got)
	}
	s.Read(nil)
	if got := gone(s, "public.outbox"); got != ", false" {
		t.Errorf("of a topic that was recreated: %s", got)
	}
}

func TestSet_SaysThatMoreWereDiscardedThanItKeeps(t *testing.T) {
	s := newSet()
	s.gone.limit = 1
	s.Read(known(own, "public.outbox", "a", 0))
	s.Read(known(own, "public.outbox", "b", 1))
	s.Read(discards(2, 0))
	if got := gone(s, "public.outbox"); got != "a, false" {
		t.Errorf("%s", got)
	}
	s.Read(discards(3, 1))
	if got := gone(s, "public.outbox"); got != "a, true" || s.Full() {
		t.Errorf("%s", got)
	}
}

// An event that was sent after all makes room for another one, of letters and of bytes.
func TestSet_KeepsAsManyDiscardedLettersAsItMay(t *testing.T) {
	large := func(name string, bytes int) string { return name + strings.Repeat("x", bytes-len(name)) }
	for name, tt := range map[string]struct {
		limit         int
		first, second string
		more          string // is one too many
	}{
		"of letters": {2, "a", "b", "c"},
		"of bytes":   {10, large("a", maxBytes/2), large("b", maxBytes/2), "c"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSet()
			s.gone.limit = tt.limit
			at := int64(0)
			next := func(event string, done func(at int64, offsets ...int64) *topics.Message) {
				s.Read(known(own, "public.outbox", event, at))
				s.Read(done(at+1, at))
				at += 2
			}
			sent := func(at int64, offsets ...int64) *topics.Message { return marker(own, at, offsets...) }
			for range 3 {
				next(tt.first, discards)
				next(tt.second, discards)
				next(tt.second, discards) // again
				if ids, full := s.Discarded(named("public.outbox")); len(ids) != 2 || full {
					t.Fatalf("%d are kept, %t", len(ids), full)
				}
				next(tt.first, sent)
				next(tt.second, sent)
			}
			next(tt.first, discards)
			next(tt.second, discards)
			next(tt.more, discards)
			if _, full := s.Discarded(named("public.outbox")); !full {
				t.Error("one too many was kept")
			}
		})
	}
}
