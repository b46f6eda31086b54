package deadletter

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// Filter selects letters; a zero field selects all.
type Filter struct {
	Reason    string
	Table     string
	Topic     string
	Key       []byte
	Since     time.Time
	Commit    wal.LSN
	Partition *int32
	Offset    *int64

	Places map[Location]bool // nil selects all

	Source func(source string) bool // nil selects all
}

// Empty reports whether it selects everything, whatever the source.
func (f Filter) Empty() bool {
	return f.Reason == "" && f.Table == "" && f.Topic == "" && f.Key == nil && f.Since.IsZero() && f.Commit == 0 && f.Partition == nil && f.Offset == nil && f.Places == nil
}

func (f Filter) matches(l *Letter) bool {
	return (f.Reason == "" || f.Reason == l.Reason) &&
		(f.Table == "" || f.Table == l.Table) &&
		(f.Topic == "" || f.Topic == l.Record.Topic) &&
		(f.Key == nil || l.Record.Key != nil && bytes.Equal(f.Key, l.Record.Key)) &&
		(f.Since.IsZero() || !l.At.Before(f.Since)) &&
		(f.Commit == 0 || f.Commit == l.Commit) &&
		(f.Partition == nil || *f.Partition == l.Partition) &&
		(f.Offset == nil || *f.Offset == l.Offset) &&
		(f.Places == nil || f.Places[l.Location()])
}

// Entry is a letter without what may be large: value, headers and message are not
// kept.
type Entry struct {
	Letter
	Event   string // id of the event, empty when it is not known
	Size    int    // of the value that the topic has
	Done    string // Sent or Discarded, empty while it waits
	Matched bool   // by the filter; others are here because they share its group
	Other   bool   // the filter selects all of it but its source

	sum   digest   // of the record
	found likeness // of its row, once it was restored
	keyed bool     // its key distinguishes rows, see keyTells; known with found
}

// unproven reports whether neither key nor value of a restored letter shows that the row is the
// letter's own.
func (e *Entry) unproven() bool {
	return !e.Complete() && e.found == unknown && !e.keyed
}

// copyOf reports whether two letters of a group have the same record. Two standbys may have given their
// timelines one number, and a disk that is put back keeps its own, so a place may be that of two rows: the
// time of the commit tells them apart. Letters of earlier builds lack that, or timeline and record number
// too; then sum compares their content.
func (e *Entry) copyOf(other *Entry) bool {
	switch {
	case e.ID != other.ID:
		return false
	case e.Timeline == 0:
		return e.sum == other.sum
	}
	return e.Committed.IsZero() || other.Committed.IsZero() || e.Committed.Equal(other.Committed)
}

// Older orders entries by the time of their letters, then by record, then by place, so that two
// readings give the same order.
func Older(a, b *Entry) int {
	return cmp.Or(a.At.Compare(b.At), a.Compare(b.ID), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

type groupOf struct {
	source string
	group  Group
}

// Backlog is what a dead-letter topic holds, as one reading found it.
type Backlog struct {
	Entries []*Entry // in the order of offsets within each partition, the partitions mixed as they came
	Foreign int      // records that are neither letters nor markers

	groups map[groupOf]*letters
	names  map[string]string // each text once: a million letters share a few
}

// letters are those of one group.
type letters struct {
	waiting []*Entry // no marker covers them yet, in the order of reading
}

func newBacklog() *Backlog {
	return &Backlog{groups: make(map[groupOf]*letters), names: make(map[string]string)}
}

// OpenPatience is for how long letters are awaited that an open Kafka transaction hides. It is longer than the minute
// after which the brokers end one whose producer asks for no other time.
const OpenPatience = 75 * time.Second

// ReadBacklog reads the topic to its present end. It waits for Kafka transactions that are open, as topics.ReadWhole
// does.
func ReadBacklog(ctx context.Context, at broker.Connection, topic string, filter Filter, waits func()) (*Backlog, error) {
	b := newBacklog()
	err := topics.ReadWhole(ctx, at, topic, OpenPatience, waits, func(m *topics.Message) error { b.add(m, filter); return nil })
	return b, err
}

// ReadBacklogUpTo is for whoever has neither the time to wait for open Kafka transactions, which hide what lies behind
// them, nor the memory for any number of letters: it fails with a *TooManyError when the topic has more than most.
func ReadBacklogUpTo(ctx context.Context, at broker.Connection, topic string, filter Filter, most int) (*Backlog, error) {
	b := newBacklog()
	err := topics.ReadTopic(ctx, at, topic, func(m *topics.Message) error {
		if b.add(m, filter); len(b.Entries) > most {
			return &TooManyError{Topic: topic, Most: most}
		}
		return nil
	})
	return b, err
}

// TooManyError is a topic with more dead letters than are read.
type TooManyError struct {
	Topic string
	Most  int
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("topic %s has more than %d dead letters, with those that are done with", e.Topic, e.Most)
}

// add takes a record of the topic, those of a partition in their order.
func (b *Backlog) add(m *topics.Message, filter Filter) {
	letter, marker, err := Parse(m)
	switch {
	case err != nil:
		b.Foreign++
	case marker != nil:
		b.applyMarker(marker)
	default:
		b.letter(letter, filter)
	}
}

func (b *Backlog) applyMarker(m *Marker) {
	group := b.groups[groupOf{m.Source, m.Group}]
	if group == nil {
		return // its letters are past the topic's retention
	}
	group.waiting = m.cover(group.waiting)
}

// cover gives the letters that the marker covers its outcome, and returns the others.
func (m *Marker) cover(waiting []*Entry) []*Entry {
	return slices.DeleteFunc(waiting, func(e *Entry) bool {
		covered := m.Covers(&e.Letter)
		if covered {
			e.Done = m.Outcome
		}
		return covered
	})
}

func (b *Backlog) letter(letter *Letter, filter Filter) {
	e := &Entry{Letter: *letter, Event: letter.EventID(), Size: len(letter.Record.Value), sum: digestOf(&letter.Record)}
	e.Matched = filter.matches(letter)
	if e.Matched && filter.Source != nil && !filter.Source(letter.Source) {
		e.Matched, e.Other = false, true
	}
	e.Record.Value, e.Record.Headers, e.Message = nil, nil, ""
	e.Record.Key = bytes.Clone(e.Record.Key)
	for _, text := range []*string{&e.Source, &e.Reason, &e.Table, &e.Of.ID.Name, &e.Record.Topic} {
		*text = b.once(*text)
	}
	b.Entries = append(b.Entries, e)
	of := groupOf{e.Source, e.Group}
	group := b.groups[of]
	if group == nil {
		group = &letters{}
		b.groups[of] = group
	}
	group.waiting = append(group.waiting, e)
}

func (b *Backlog) once(text string) string {
	if known, ok := b.names[text]; ok {
		return known
	}
	b.names[text] = text
	return text
}

// Task is what is to be done with letters of one group. Where the topic of a waiting letter is not
// known yet, it may be that of any other letter of its key: all groups of that key are then one
// task.
type Task struct {
	Entries []*Entry // in the order in which their rows were committed, copies next to each other
	Left    int      // letters of the task's groups that wait and are not among Entries

	waiting []*Entry // all of the groups that no marker covered at the reading, by partition, group and offset
}

// keyOf is a key of a source, in whatever topic.
type keyOf struct{ source, key string }

func (e *Entry) keyOf() keyOf { return keyOf{e.Source, string(e.Record.Key)} }

// unrouted returns the waiting letters of each key that has one whose topic is not known yet.
func (b *Backlog) unrouted() map[keyOf][]*Entry {
	unknown := make(map[keyOf]bool)
	for _, e := range b.Entries {
		if e.Done == "" && e.Record.Topic == "" && e.Record.Key != nil {
			unknown[e.keyOf()] = true
		}
	}
	letters := make(map[keyOf][]*Entry, len(unknown))
	for _, e := range b.Entries {
		if of := e.keyOf(); e.Done == "" && e.Record.Key != nil && unknown[of] {
			letters[of] = append(letters[of], e)
		}
	}
	return letters
}

// Whole returns the groups with a selected waiting letter. Each has all its waiting letters, so
// that none is overtaken by later ones of its key.
func (b *Backlog) Whole() []Task { return b.tasks(true) }

// Selected returns the selected waiting letters, with other letters of the same records, without
// the rest of their groups.
func (b *Backlog) Selected() []Task { return b.tasks(false) }

// tasks are in the order of their first rows.
func (b *Backlog) tasks(whole bool) (tasks []Task) {
	seen, unrouted := make(map[*Entry]bool), b.unrouted()
	for _, e := range b.Entries {
		if e.Done != "" || !e.Matched || seen[e] {
			continue
		}
		waiting := b.groups[groupOf{e.Source, e.Group}].waiting
		if all := unrouted[e.keyOf()]; e.Record.Key != nil && all != nil {
			waiting = all
		}
		for _, e := range waiting {
			seen[e] = true
		}
		task := Task{Entries: slices.Clone(waiting)}
		if !whole {
			chosen := make(map[ID][]*Entry)
			for _, e := range task.Entries {
				if e.Matched {
					chosen[e.ID] = append(chosen[e.ID], e)
				}
			}
			task.Entries = slices.DeleteFunc(task.Entries, func(e *Entry) bool { return !slices.ContainsFunc(chosen[e.ID], e.copyOf) })
		}
		task.Left = len(waiting) - len(task.Entries)
		slices.SortStableFunc(task.Entries, func(a, b *Entry) int { return cmp.Or(a.Compare(b.ID), a.At.Compare(b.At)) })
		task.waiting = slices.SortedFunc(slices.Values(waiting), func(a, b *Entry) int {
			return cmp.Or(cmp.Compare(a.Partition, b.Partition), bytes.Compare(a.Group[:], b.Group[:]), cmp.Compare(a.Offset, b.Offset))
		})
		tasks = append(tasks, task)
	}
	byFirstRow(tasks)
	return tasks
}

// byFirstRow orders tasks by their first entries. Positions of two systems do not compare, so the
// system with the oldest letter comes first.
func byFirstRow(tasks []Task) {
	system := func(e *Entry) string {
		name, _, _ := SplitSource(e.Source)
		return name
	}
	oldest := make(map[string]time.Time)
	for _, task := range tasks {
		for _, e := range task.Entries {
			if at, ok := oldest[system(e)]; !ok || e.At.Before(at) {
				oldest[system(e)] = e.At
			}
		}
	}
	slices.SortStableFunc(tasks, func(a, b Task) int {
		first, other := a.Entries[0], b.Entries[0]
		one, two := system(first), system(other)
		return cmp.Or(oldest[one].Compare(oldest[two]), strings.Compare(one, two), first.Compare(other.ID), Older(first, other))
	})
}

// ReadLetters reads the letters of the entries again, with their values. A letter that the topic
// no longer has is absent. An entry that a marker covers by now becomes done.
func ReadLetters(ctx context.Context, at broker.Connection, topic string, entries []*Entry) (map[Location]*Letter, error) {
	f := newFilling(entries)
	err := topics.ReadTopic(ctx, at, topic, f.add)
	return f.found, err
}

// filling is a second reading, for some entries.
type filling struct {
	want  map[Location]*Entry
	open  map[groupOf][]*Entry
	found map[Location]*Letter
}

func newFilling(entries []*Entry) *filling {
	f := &filling{want: make(map[Location]*Entry, len(entries)), open: make(map[groupOf][]*Entry), found: make(map[Location]*Letter, len(entries))}
	for _, e := range entries {
		f.want[e.Location()] = e
	}
	return f
}

// add takes a record of the topic, those of a partition in their order.
func (f *filling) add(m *topics.Message) error {
	e := f.want[Location{m.Partition, m.Offset}]
	if e == nil && headerAt(m.Headers, HeaderDone) < 0 {
		return nil
	}
	letter, marker, err := Parse(m)
	switch {
	case e != nil && err != nil:
		return err
	case e != nil && letter != nil:
		f.found[letter.Location()] = letter
		of := groupOf{e.Source, e.Group}
		f.open[of] = append(f.open[of], e)
	case marker != nil:
		of := groupOf{marker.Source, marker.Group}
		f.open[of] = marker.cover(f.open[of])
	}
	return nil
}

// Location is where a letter lies in the topic.
type Location struct {
	Partition int32
	Offset    int64
}

// Location is where it lies.
func (l *Letter) Location() Location { return Location{l.Partition, l.Offset} }
