// Package ledger keeps what was committed to an outbox and compares it with what
// the topics hold. It knows nothing of the relay, so it can judge it.
package ledger

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Event is one row of an outbox as a consumer shall see it.
type Event struct {
	ID    string // the record's header `id`
	Topic string
	Key   string
	Value []byte // nil: not compared
}

// Ledger is the list of committed events. Its methods may be called from any
// goroutine. Events of one topic and key are given in the order of their commits;
// between different keys the order means nothing.
type Ledger struct {
	mu        sync.Mutex
	events    map[string]entry
	next      map[stream]int
	aborted   map[string]bool
	uncertain []Event
}

type stream struct{ topic, key string }

type entry struct {
	Event
	place int // in its stream, from 0
}

// New is an empty ledger.
func New() *Ledger {
	return &Ledger{events: map[string]entry{}, next: map[stream]int{}, aborted: map[string]bool{}}
}

// Committed adds events of one transaction after its commit.
func (l *Ledger) Committed(events ...Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(events)
}

func (l *Ledger) add(events []Event) {
	for _, e := range events {
		at := stream{e.Topic, e.Key}
		l.events[e.ID] = entry{Event: e, place: l.next[at]}
		l.next[at]++
	}
}

// RolledBack adds events that nobody may ever see.
func (l *Ledger) RolledBack(events ...Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		l.aborted[e.ID] = true
	}
}

// Uncertain adds events whose commit lost its connection. Resolve decides them.
// The writer must not write to their keys before that.
func (l *Ledger) Uncertain(events ...Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncertain = append(l.uncertain, events...)
}

// Resolve asks for each uncertain event whether it was committed.
func (l *Ledger) Resolve(committed func(id string) (bool, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.uncertain {
		yes, err := committed(e.ID)
		if err != nil {
			return fmt.Errorf("resolve event %s: %w", e.ID, err)
		}
		if yes {
			l.add([]Event{e})
		} else {
			l.aborted[e.ID] = true
		}
	}
	l.uncertain = nil
	return nil
}

// Len is the number of committed events.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// Has reports whether an event is known to be committed.
func (l *Ledger) Has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.events[id]
	return known
}

// Topics are the topics of the committed events, sorted.
func (l *Ledger) Topics() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]bool{}
	for at := range l.next {
		seen[at.topic] = true
	}
	topics := make([]string, 0, len(seen))
	for topic := range seen {
		topics = append(topics, topic)
	}
	slices.Sort(topics)
	return topics
}

// Report is the verdict.
type Report struct {
	Committed  int // events in the ledger
	Delivered  int // of those, seen at least once
	Records    int // records read
	Duplicates int // records that repeat an event

	Missing    []string // committed and not delivered
	Disordered []string // delivered against the order of commits of their key
	Phantom    []string // rolled back or never written, and yet delivered
	Altered    []string // wrong topic, key or value
}

// Err is nil when every event was delivered, unaltered, in the order of its key,
// and nothing else was. Duplicates are no error.
func (r Report) Err() error {
	var wrong []string
	for _, kind := range []struct {
		name string
		ids  []string
	}{{"missing", r.Missing}, {"out of order", r.Disordered}, {"never committed", r.Phantom}, {"altered", r.Altered}} {
		if len(kind.ids) > 0 {
			wrong = append(wrong, fmt.Sprintf("%d %s (%s)", len(kind.ids), kind.name, strings.Join(kind.ids[:min(3, len(kind.ids))], ", ")))
		}
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("of %d committed events: %s", r.Committed, strings.Join(wrong, "; "))
}

func (r Report) String() string {
	return fmt.Sprintf("committed %d, delivered %d, missing %d, duplicates %d, order violations %d, phantoms %d, altered %d",
		r.Committed, r.Delivered, len(r.Missing), r.Duplicates, len(r.Disordered), len(r.Phantom), len(r.Altered))
}

// Check compares with records that were read from the beginning of the topics, in
// the order of offsets within each partition.
func (l *Ledger) Check(records []*kgo.Record) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Report{Committed: len(l.events), Records: len(records)}
	seen := make(map[string]bool, len(l.events))
	highest := map[stream]int{} // place of the highest event seen, plus one
	last := map[stream]string{}
	for _, record := range records {
		id := ID(record)
		want, known := l.events[id]
		if !known {
			r.Phantom = append(r.Phantom, id)
			continue
		}
		at := stream{want.Topic, want.Key}
		switch {
		case record.Topic != want.Topic || string(record.Key) != want.Key || want.Value != nil && !bytes.Equal(record.Value, want.Value):
			r.Altered = append(r.Altered, id)
		case seen[id]:
			r.Duplicates++
		case want.place < highest[at]:
			r.Disordered = append(r.Disordered, id)
		}
		highest[at] = max(highest[at], want.place+1)
		last[at] = id
		seen[id] = true
	}
	r.Delivered = len(seen)
	for id, e := range l.events {
		if !seen[id] {
			r.Missing = append(r.Missing, id)
		}
		// A replay that ends in the middle would leave consumers with an old state.
		at := stream{e.Topic, e.Key}
		if e.place == l.next[at]-1 && seen[id] && last[at] != id && !slices.Contains(r.Disordered, last[at]) {
			r.Disordered = append(r.Disordered, last[at])
		}
	}
	slices.Sort(r.Missing)
	return r
}

// ID is the event id of a record; empty when it has none.
func ID(record *kgo.Record) string {
	for _, header := range record.Headers {
		if header.Key == "id" {
			return string(header.Value)
		}
	}
	return ""
}
