package deadletter

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// The headers of a marker, beside HeaderSource and HeaderGroup.
const (
	HeaderDone    = "cdc-relay-redrive"         // Sent or Discarded
	HeaderOffsets = "cdc-relay-redrive-offsets" // where no letter of the group waits in the marker's partition: 0-5,9

	// A marker of an earlier build has no offsets: it covers the letters of its group and partition up
	// to this row. Later markers carry a row with which an earlier build covers no waiting letter, or
	// 0/0.
	HeaderThroughLSN = "cdc-relay-redrive-lsn"
	HeaderThroughSeq = "cdc-relay-redrive-seq"
)

// What became of the letters that a marker covers.
const (
	Sent      = "sent"
	Discarded = "discarded"
)

// Marker says which letters of a group are done. It is about its own partition only, and lies
// after the letters that it covers.
//
// Each range begins after the last letter that waits before it, not at the first letter that is
// done. So the ranges of several markers meet, and a reader that keeps no list of letters can
// tell that nothing waits between two offsets.
type Marker struct {
	Source  string
	Group   Group
	Outcome string // Sent or Discarded

	Partition int32   // where it lies
	Offsets   Offsets // no letter of the group waits at these

	Through wal.Place
	byRow   bool // it is of an earlier build: Through is what it covers
}

// Covers reports whether a letter of the marker's partition that lies before it is done
// with.
func (m *Marker) Covers(l *Letter) bool {
	switch {
	case l.Source != m.Source || l.Group != m.Group || l.Partition != m.Partition:
		return false
	case m.byRow:
		return l.Place.Compare(m.Through) <= 0
	}
	return m.Offsets.Has(l.Offset)
}

// Record is the marker as a record of the dead-letter topic. key is that of the
// letters.
func (m *Marker) Record(topic string, key []byte) record.Record {
	headers := []record.Header{
		{Key: HeaderDone, Value: []byte(m.Outcome)},
		{Key: HeaderSource, Value: []byte(m.Source)},
		{Key: HeaderGroup, Value: []byte(m.Group.String())},
		{Key: HeaderThroughLSN, Value: []byte(m.Through.Commit.String())},
		{Key: HeaderThroughSeq, Value: strconv.AppendUint(nil, m.Through.Ordinal, 10)},
		{Key: HeaderOffsets, Value: []byte(m.Offsets.String())},
	}
	return record.Record{Topic: topic, Key: key, Partition: m.Partition, Headers: headers}
}

func (p *parser) marker(partition int32, offset int64) *Marker {
	m := &Marker{
		Source: p.values[HeaderSource], Group: p.group(), Outcome: p.values[HeaderDone],
		Partition: partition, Through: p.row(HeaderThroughLSN, HeaderThroughSeq),
	}
	if m.Outcome != Sent && m.Outcome != Discarded {
		p.fail(HeaderDone)
	}
	text, exact := p.values[HeaderOffsets]
	m.byRow = !exact
	var err error
	if m.Offsets, err = parseOffsets(text); err != nil || exact && (len(m.Offsets) == 0 || m.Offsets[len(m.Offsets)-1].last >= offset) {
		p.fail(HeaderOffsets)
	}
	return m
}

// Offsets is a set of offsets of one partition: ranges in ascending order that do not
// overlap.
type Offsets []offsetRange

type offsetRange struct{ first, last int64 }

// NewOffsets is the set of the offsets in at, which it sorts.
func NewOffsets(at []int64) (set Offsets) {
	slices.Sort(at)
	for _, offset := range at {
		switch n := len(set); {
		case n > 0 && offset <= set[n-1].last:
		case n > 0 && offset == set[n-1].last+1:
			set[n-1].last = offset
		default:
			set = append(set, offsetRange{offset, offset})
		}
	}
	return set
}

// coverage returns the ranges that markers may cover in one partition. waiting are the letters of
// a group that no marker covers, in the order of offsets; done reports which of them are done.
func coverage(waiting []*Entry, done func(*Entry) bool) (set Offsets) {
	from, open := int64(0), false
	for _, e := range waiting {
		switch {
		case !done(e):
			from, open = e.Offset+1, false
		case open:
			set[len(set)-1].last = e.Offset
		default:
			set, open = append(set, offsetRange{from, e.Offset}), true
		}
	}
	return set
}

// span is where letters of a key may wait in one partition.
type span struct {
	partition   int32
	first, last int64
	row         wal.Place // the highest one
	done        Offsets   // after first
}

// cover reports whether nothing is left.
func (s *span) cover(set Offsets) bool {
	s.done = append(s.done, set...)
	slices.SortFunc(s.done, func(a, b offsetRange) int { return cmp.Compare(a.first, b.first) })
	left := s.done[:0]
	for _, r := range s.done {
		switch {
		case r.last < s.first:
		case r.first <= s.first:
			s.first = r.last + 1
		case len(left) > 0 && r.first <= left[len(left)-1].last+1:
			left[len(left)-1].last = max(left[len(left)-1].last, r.last)
		default:
			left = append(left, r)
		}
	}
	s.done = left
	return s.first > s.last
}

// Has reports whether an offset is in the set.
func (o Offsets) Has(offset int64) bool {
	_, found := slices.BinarySearchFunc(o, offset, func(r offsetRange, offset int64) int {
		switch {
		case offset < r.first:
			return 1
		case offset > r.last:
			return -1
		}
		return 0
	})
	return found
}

func (o Offsets) String() string {
	var text []byte
	for i, r := range o {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, r.first, 10)
		if r.last > r.first {
			text = strconv.AppendInt(append(text, '-'), r.last, 10)
		}
	}
	return string(text)
}

var errOffsets = errors.New("no list of offsets")

func parseOffsets(text string) (set Offsets, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		first, err := strconv.ParseInt(from, 10, 64)
		last, err2 := strconv.ParseInt(to, 10, 64)
		if err != nil || err2 != nil || first < 0 || last < first || len(set) > 0 && first <= set[len(set)-1].last {
			return nil, errOffsets
		}
		set = append(set, offsetRange{first, last})
	}
	return set, nil
}
