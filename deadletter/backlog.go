package deadletter

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/jackc/pglogrepl"
)

// Filter selects letters; a zero field selects all.
type Filter struct {
	Reason    string
	Table     string
	Topic     string
	Key       []byte
	Since     time.Time
	Commit    pglogrepl.LSN
	Partition *int32
	Offset    *int64
}

// Empty says that it selects everything.
func (f Filter) Empty() bool {
	return f.Reason == "" && f.Table == "" && f.Topic == "" && f.Key == nil && f.Since.IsZero() && f.Commit == 0 && f.Partition == nil && f.Offset == nil
}

func (f Filter) matches(l *Letter) bool {
	return (f.Reason == "" || f.Reason == l.Reason) &&
		(f.Table == "" || f.Table == l.Table) &&
		(f.Topic == "" || f.Topic == l.Record.Topic) &&
		(f.Key == nil || l.Record.Key != nil && bytes.Equal(f.Key, l.Record.Key)) &&
		(f.Since.IsZero() || !l.At.Before(f.Since)) &&
		(f.Commit == 0 || f.Commit == l.Commit) &&
		(f.Partition == nil || *f.Partition == l.Partition) &&
		(f.Offset == nil || *f.Offset == l.Offset)
}

// Entry is a letter without what may be large: value, headers and message are not
// kept.
type Entry struct {
	Letter
	ID      string // of the event, empty when it is not known
	Size    int    // of the value that the topic has
	Done    string // Sent or Discarded, empty while it waits
	Matched bool   // by the filter; others are here because they share its group
}

// Older orders entries as they were set aside. Those of one moment are in the order of
// their rows, then of their places, so that two readings give the same order.
func Older(a, b *Entry) int {
	return cmp.Or(a.At.Compare(b.At), a.Compare(b.Row), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

type groupOf struct {
	source string
	group  Group
}

// Backlog is what a dead-letter topic holds, as one reading found it.
type Backlog struct {
	Entries []*Entry // in the order of offsets within each partition, the partitions mixed as they came
	Foreign int      // records that are neither letters nor markers

	names map[string]string // each text once: a million letters share a few
}

// ReadBacklog reads the topic to its present end.
func ReadBacklog(ctx context.Context, cfg sink.KafkaConfig, topic string, filter Filter) (*Backlog, error) {
	b := &Backlog{names: make(map[string]string)}
	waiting := make(map[groupOf][]*Entry)
	err := sink.ReadTopic(ctx, cfg, topic, func(m *sink.Message) error {
		b.add(m, filter, waiting)
		return nil
	})
	return b, err
}

// add takes a record; waiting are the entries by group that no marker covers yet.
func (b *Backlog) add(m *sink.Message, filter Filter, waiting map[groupOf][]*Entry) {
	letter, marker, err := Parse(m)
	if err != nil {
		b.Foreign++
		return
	}
	if marker != nil {
		of := groupOf{marker.Source, marker.Group}
		waiting[of] = slices.DeleteFunc(waiting[of], func(e *Entry) bool {
			covered := e.Partition == m.Partition && e.Compare(marker.Through) <= 0
			if covered {
				e.Done = marker.Outcome
			}
			return covered
		})
		return
	}
	e := &Entry{Letter: *letter, ID: letter.EventID(), Size: len(letter.Record.Value), Matched: filter.matches(letter)}
	e.Record.Value, e.Record.Headers, e.Message = nil, nil, ""
	e.Record.Key = bytes.Clone(e.Record.Key)
	for _, text := range []*string{&e.Source, &e.Reason, &e.Table, &e.Record.Topic} {
		*text = b.once(*text)
	}
	b.Entries = append(b.Entries, e)
	of := groupOf{e.Source, e.Group}
	waiting[of] = append(waiting[of], e)
}

func (b *Backlog) once(text string) string {
	if known, ok := b.names[text]; ok {
		return known
	}
	b.names[text] = text
	return text
}

// Waiting are the groups that the filter selects a waiting letter of, each whole and
// in the order in which its rows were committed: a letter that overtook one of its
// key would break the order that it was put aside to keep. Of letters that are there
// more than once the first is taken. The groups are in the order of their first rows.
func (b *Backlog) Waiting() [][]*Entry {
	groups := make(map[groupOf][]*Entry)
	var order []groupOf
	selected := make(map[groupOf]bool)
	for _, e := range b.Entries {
		if e.Done != "" {
			continue
		}
		of := groupOf{e.Source, e.Group}
		if groups[of] == nil {
			order = append(order, of)
		}
		groups[of] = append(groups[of], e)
		selected[of] = selected[of] || e.Matched
	}
	var all [][]*Entry
	for _, of := range order {
		if !selected[of] {
			continue
		}
		group := groups[of]
		slices.SortStableFunc(group, func(a, b *Entry) int { return a.Compare(b.Row) })
		all = append(all, group)
	}
	byFirstRow(all)
	return all
}

// byFirstRow orders groups whose rows are in order. Positions compare within one
// system only; of several the one with the oldest letter comes first.
func byFirstRow(groups [][]*Entry) {
	system := func(e *Entry) string {
		name, _, _ := strings.Cut(e.Source, "/") // see SourceID
		return name
	}
	oldest := make(map[string]time.Time)
	for _, group := range groups {
		for _, e := range group {
			if at, ok := oldest[system(e)]; !ok || e.At.Before(at) {
				oldest[system(e)] = e.At
			}
		}
	}
	slices.SortStableFunc(groups, func(a, b []*Entry) int {
		one, other := system(a[0]), system(b[0])
		return cmp.Or(oldest[one].Compare(oldest[other]), strings.Compare(one, other), a[0].Compare(b[0].Row), Older(a[0], b[0]))
	})
}

// Fill reads the letters at the given places again, whole. One that is gone is
// absent.
func Fill(ctx context.Context, cfg sink.KafkaConfig, topic string, entries []*Entry) (map[Place]*Letter, error) {
	want := make(map[Place]bool, len(entries))
	for _, e := range entries {
		want[e.Place()] = true
	}
	found := make(map[Place]*Letter, len(entries))
	err := sink.ReadTopic(ctx, cfg, topic, func(m *sink.Message) error {
		if !want[Place{m.Partition, m.Offset}] {
			return nil
		}
		letter, _, err := Parse(m)
		if err == nil && letter != nil {
			found[letter.Place()] = letter
		}
		return err
	})
	return found, err
}

// Place is where a letter lies in the topic.
type Place struct {
	Partition int32
	Offset    int64
}

// Place is where it lies.
func (l *Letter) Place() Place { return Place{l.Partition, l.Offset} }
