// Package waiting keeps which rows have a dead letter that waits, for whoever may not touch such
// rows: the letter may lack a part that only the row has. It follows the dead-letter topic as
// it is read, and forgets what is done with.
package waiting

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// Bounds of what is kept, of letters that wait and of discarded ones each: some 40 MiB.
const (
	maxLetters = 100_000
	maxBytes   = 32 << 20 // of event ids and names of tables
)

// Set is the letters that no marker covers. Its methods may be called from any goroutine.
type Set struct {
	own    func(source string) bool
	former func(*deadletter.Letter) bool // set by Former; nil: there are none
	limit  int

	mu     sync.Mutex // guards the following
	groups map[group][]letter
	count  int
	bytes  int
	full   bool
	gone   discarded

	reasons map[string]string // each is kept once
}

type group struct {
	source string
	group  deadletter.Group
}

// letter is what has to be known of one.
type letter struct {
	deadletter.Location
	from
	row      wal.Place
	event    string
	reason   string // one of few
	stripped bool   // of its headers, the event id among them
	former   bool   // see Former
}

func (l *letter) size() int { return len(l.table) + len(l.of.ID.Name) + len(l.event) }

// New returns an empty set for letters of the sources that own selects.
func New(own func(source string) bool) *Set {
	return &Set{own: own, limit: maxLetters, gone: discarded{limit: maxLetters}, groups: make(map[group][]letter), reasons: make(map[string]string)}
}

// Former has letters count that are of none of these sources, and that another one left which is gone. They
// count for the table alone that they name by its OID. It is to be called before Read.
func (s *Set) Former(left func(*deadletter.Letter) bool) { s.former = left }

// Read takes a record of the dead-letter topic, in the order of its partition. What is neither
// letter nor marker is passed over. Nil means that the topic was deleted and recreated.
func (s *Set) Read(m *topics.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m == nil {
		clear(s.groups)
		s.count, s.bytes, s.full = 0, 0, false
		s.gone.clear()
		return
	}
	found, marker, err := deadletter.Parse(m)
	switch {
	case err != nil:
	case marker != nil:
		s.done(marker) // of sources that are not followed no letter is there
	case s.own(found.Source):
		s.add(found, false)
	case s.former != nil && s.former(found):
		s.add(found, true)
	}
}

func (s *Set) add(l *deadletter.Letter, former bool) {
	one := letter{Location: l.Location(), from: from{l.Table, l.Of}, row: l.Place, event: l.EventID(), former: former}
	one.reason = s.known(l.Reason)
	one.stripped = one.event == "" && slices.Contains(l.Missing, router.PartHeaders)
	if s.full || s.count >= s.limit || s.bytes+one.size() > maxBytes {
		s.full = true // whether what is left out now is done with later, nobody will know
		return
	}
	of := group{l.Source, l.Group}
	s.groups[of] = append(s.groups[of], one)
	s.count++
	s.bytes += one.size()
}

func (s *Set) done(m *deadletter.Marker) {
	of := group{m.Source, m.Group}
	left := slices.DeleteFunc(s.groups[of], func(one letter) bool {
		covered := m.Covers(&deadletter.Letter{
			ID: deadletter.ID{Place: one.row}, Source: m.Source, Group: m.Group, Partition: one.Partition, Offset: one.Offset,
		})
		if covered {
			s.count--
			s.bytes -= one.size()
			switch {
			case one.former: // its row may have been sent in another way
			case m.Outcome == deadletter.Discarded:
				s.gone.add(one.from, one.event)
			default:
				s.gone.sent(one.from, one.event)
			}
		}
		return covered
	})
	if s.groups[of] = left; len(left) == 0 {
		delete(s.groups, of)
	}
}

// Full reports whether more letters wait than are kept. It stays so: begin with an empty set.
func (s *Set) Full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

// Len is how many letters wait, of those that are kept.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Held says which rows of one table have a letter that waits.
type Held struct {
	Letters int
	IDs     map[string]struct{} // of events, as the header id has them
	NoID    bool                // a letter without an event id: its row has none

	// Letters that may be of any row, and why.
	Stripped int             // they were too large for their event ids
	Earlier  int             // they are of earlier builds
	Other    int             // their event ids are not of the column that the mapping has now
	Example  record.IDColumn // that of the last such letter

	Former       int    // of Letters: those that a source left which is gone
	FormerSource string // that of one of these
}

// Unnamed is how many letters may be of any row.
func (h *Held) Unnamed() int { return h.Stripped + h.Earlier + h.Other }

// Any reports whether there is such a letter.
func (h *Held) Any() bool { return h.Unnamed() > 0 }

// Of are the letters of a table.
func (s *Set) Of(t *Table) Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := Held{IDs: make(map[string]struct{})}
	for of, letters := range s.groups {
		for i := range letters {
			switch one := &letters[i]; {
			case !one.former && t.may(&one.from):
				held.add(one, t)
			case one.former && one.of.Known && one.of.OID == t.OID:
				held.add(one, t)
				held.Former, held.FormerSource = held.Former+1, of.source
			}
		}
	}
	return held
}

func (h *Held) add(one *letter, t *Table) {
	h.Letters++
	switch {
	case one.stripped:
		h.Stripped++
	case !one.of.Known:
		h.Earlier++
	case one.of.ID != t.ID:
		h.Other++
		h.Example = one.of.ID
	case one.event == "":
		h.NoID = true
		fallthrough // or the id is an empty text
	default:
		h.IDs[one.event] = struct{}{}
	}
}

// Named is the newest letter that waits of a row with an event id.
type Named struct {
	Event, Reason string
	deadletter.Location
	row wal.Place
}

// Named are the letters that are of the table for certain, one for each event id.
func (s *Set) Named(t *Table) map[string]Named {
	s.mu.Lock()
	defer s.mu.Unlock()
	named := make(map[string]Named)
	for _, letters := range s.groups {
		for _, one := range letters {
			if one.event == "" || !t.has(&one.from) {
				continue
			}
			n := Named{one.event, one.reason, one.Location, one.row}
			if last, ok := named[one.event]; !ok || last.before(n) {
				named[one.event] = n
			}
		}
	}
	return named
}

func (n Named) before(other Named) bool {
	return cmp.Or(n.row.Compare(other.row), cmp.Compare(n.Partition, other.Partition), cmp.Compare(n.Offset, other.Offset)) < 0
}

var reasonForm = regexp.MustCompile(`^[a-z_]{1,63}$`)

const (
	maxReasons    = 100
	anotherReason = "rejected" // of a letter whose own is no name, or one of too many
)

// known keeps a reason once, and nothing else of the record that it is of.
func (s *Set) known(reason string) string {
	if kept, ok := s.reasons[reason]; ok {
		return kept
	}
	if len(s.reasons) == maxReasons || !reasonForm.MatchString(reason) {
		return anotherReason
	}
	kept := strings.Clone(reason)
	s.reasons[kept] = kept
	return kept
}
