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

// of are the headers that say of which table and column a letter is.
func of(oid uint32, column string, typ uint32) []record.Header {
	all := []record.Header{{Key: deadletter.HeaderTableOID, Value: fmt.Append(nil, oid)}}
	if column != "" {
		all = append(all, record.Header{Key: deadletter.HeaderIDColumn, Value: []byte(column)}, record.Header{Key: deadletter.HeaderIDType, Value: fmt.Append(nil, typ)})
	}
	return all
}

func table(name string, oid uint32) *Table {
	public := func(name string) wal.Table { return wal.Table{Schema: "public", Name: name} }
	return &Table{Name: public(name), OID: oid, ID: record.IDColumn{Name: "id", Type: 2950}, Others: []wal.Table{public("outbox"), public("outbox_old")}, Messages: []string{"events"}}
}

// Table outbox was renamed to outbox_old, and another one took its name. Letters of both wait.
func TestSet_ALetterHoldsItsRowWhateverItsTableIsCalledNow(t *testing.T) {
	for name, tt := range map[string]struct {
		letter   *topics.Message
		outbox   string // OID 2
		old      string // OID 1
		earliest string // OID 7, not among those of the configuration
	}{
		"written before the rename":                     {message(own, "public.outbox", "a", 0, of(1, "id", 2950)...), "1: a", "1: a", "0: "},
		"written after it":                              {message(own, "public.outbox_old", "a", 0, of(1, "id", 2950)...), "0: ", "1: a", "0: "},
		"of the new table":                              {message(own, "public.outbox", "a", 0, of(2, "id", 2950)...), "1: a", "0: ", "0: "},
		"of a name that nobody has":                     {message(own, "public.first", "a", 0, of(7, "id", 2950)...), "1: a", "1: a", "1: a"},
		"of an earlier build":                           {message(own, "public.outbox", "a", 0), "1: , any", "1: , any", "1: , any"},
		"of a logical message":                          {message(own, "message.others", "a", 0, of(0, "", 0)...), "0: ", "0: ", "0: "},
		"of a message, earlier":                         {message(own, "message.events", "a", 0), "0: ", "0: ", "0: "},
		"of a table in a schema that is called message": {message(own, "message.events", "a", 0, of(1, "id", 2950)...), "1: a", "1: a", "1: a"},
	} {
		s := newSet()
		s.Read(tt.letter)
		for table, want := range map[*Table]string{table("outbox", 2): tt.outbox, table("outbox_old", 1): tt.old, table("earliest", 7): tt.earliest} {
			h := s.Of(table)
			got := fmt.Sprintf("%d: %s", h.Letters, strings.Join(slices.Sorted(maps.Keys(h.IDs)), " "))
			if h.Any() {
				got += ", any"
			}
			if got != want {
				t.Errorf("%s: %s of table %s, want %s", name, got, table.Name, want)
			}
		}
	}
}

// An event id is compared with the column that it is of, and with no other.
func TestSet_ALetterWithAnotherIDColumnMayBeOfAnyRow(t *testing.T) {
	for name, tt := range map[string]struct {
		more []record.Header
		id   string
		want Held
	}{
		"of the column":                    {of(1, "id", 2950), "a", Held{Letters: 1, IDs: map[string]struct{}{"a": {}}}},
		"of another one":                   {of(1, "key", 2950), "a", Held{Letters: 1, Other: 1, Example: record.IDColumn{Name: "key", Type: 2950}}},
		"of another type":                  {of(1, "id", 20), "a", Held{Letters: 1, Other: 1, Example: record.IDColumn{Name: "id", Type: 20}}},
		"of no column":                     {of(1, "", 0), "a", Held{Letters: 1, Other: 1}},
		"of an earlier build":              {nil, "a", Held{Letters: 1, Earlier: 1}},
		"without an id":                    {of(1, "id", 2950), "", Held{Letters: 1, NoID: true, IDs: map[string]struct{}{"": {}}}},
		"without an id, of another column": {of(1, "key", 2950), "", Held{Letters: 1, Other: 1, Example: record.IDColumn{Name: "key", Type: 2950}}},
		"too large for its id":             {append(of(1, "id", 2950), record.Header{Key: deadletter.HeaderMissing, Value: []byte("value,headers")}), "", Held{Letters: 1, Stripped: 1}},
	} {
		s := newSet()
		s.Read(message(own, "public.outbox", tt.id, 0, tt.more...))
		got := s.Of(table("outbox", 1))
		if !maps.Equal(got.IDs, tt.want.IDs) || got.Any() != (len(tt.want.IDs) == 0) {
			t.Errorf("%s: holds %v, any row: %t", name, got.IDs, got.Any())
		}
		got.IDs = tt.want.IDs
		if fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// Whoever writes into a row that a letter is of has to know that it is the letter's.
func TestSet_NamesOnlyRowsThatAreCertain(t *testing.T) {
	s := newSet()
	s.Read(message(own, "public.old_name", "a", 0, of(1, "id", 2950)...))
	s.Read(message(own, "public.outbox", "b", 1, of(2, "id", 2950)...)) // it has the name now
	s.Read(message(own, "public.outbox", "c", 2, of(1, "key", 2950)...))
	s.Read(message(own, "public.outbox", "d", 3))
	if got := slices.Sorted(maps.Keys(s.Named(table("outbox", 1)))); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%v", got)
	}
}

// A discarded letter holds its row back from marks as one that waits does, where it names one.
func TestSet_ADiscardedLetterNamesItsRowByItsOwnColumn(t *testing.T) {
	s := newSet()
	s.Read(message(own, "public.outbox", "a", 0, of(1, "id", 2950)...))
	s.Read(message(own, "public.outbox", "b", 1, of(1, "key", 2950)...))
	s.Read(message(own, "public.outbox", "c", 2))
	s.Read(message(own, "public.outbox", "d", 3, of(2, "id", 2950)...))
	s.Read(discards(4, 0, 1, 2, 3))
	if ids, full := s.Discarded(table("outbox_old", 1)); !slices.Equal(slices.Sorted(maps.Keys(ids)), []string{"a", "c"}) || full {
		t.Errorf("%v, %t", ids, full)
	}
	s.Read(message(own, "public.outbox", "a", 5, of(1, "id", 2950)...))
	s.Read(marker(own, 6, 5))
	if ids, _ := s.Discarded(table("outbox_old", 1)); !slices.Equal(slices.Sorted(maps.Keys(ids)), []string{"c"}) {
		t.Errorf("%v are left when a was sent", ids)
	}
}

// A source that is gone has left letters. They hold rows of the table that they name by its OID, and no others.
func TestSet_HoldsTheRowsOfLettersThatAFormerSourceLeft(t *testing.T) {
	const gone = "7/gone"
	s := newSet()
	s.Former(func(l *deadletter.Letter) bool { return l.Source == gone })
	s.Read(message(gone, "public.first", "a", 0, of(1, "id", 2950)...)) // as outbox was called
	s.Read(message(gone, "public.outbox", "b", 1, of(2, "id", 2950)...))
	s.Read(message(gone, "public.outbox", "c", 2))
	s.Read(message("7/other", "public.outbox", "d", 3, of(1, "id", 2950)...))
	s.Read(known(own, "public.outbox", "e", 4))
	if got, want := held(s, "public.outbox"), "2: a e, false, false, false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if h := s.Of(named("public.outbox")); h.Former != 1 || h.FormerSource != gone {
		t.Errorf("%d of %s", h.Former, h.FormerSource)
	}
	discarded := discards(5, 0)
	for i := range discarded.Headers {
		if discarded.Headers[i].Key == deadletter.HeaderSource {
			discarded.Headers[i].Value = []byte(gone)
		}
	}
	s.Read(discarded)
	if got, want := held(s, "public.outbox"), "1: e, false, false, false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if ids, _ := s.Discarded(named("public.outbox")); len(ids) != 0 {
		t.Errorf("%v may have been sent in another way", ids)
	}
}
