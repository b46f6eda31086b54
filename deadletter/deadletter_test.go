package deadletter

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

const topic = "letters"

func newRecord(commit wal.LSN, seq uint64, key, value string) *record.Record {
	return &record.Record{
		Topic: "orders", Key: []byte(key), Value: []byte(value), Partition: record.AutoPartition,
		Headers: []record.Header{{Key: "id", Value: []byte("e1")}, {Key: "eventType", Value: []byte("Placed")}},
		Row: &wal.Row{
			Txn: &wal.Txn{Commit: commit, Time: time.Unix(40, 0)}, Ordinal: seq,
			Relation: &wal.Relation{Namespace: "public", Name: "outbox"},
		},
	}
}

func message(r record.Record, partition int32, offset int64) *topics.Message {
	return &topics.Message{Topic: r.Topic, Partition: partition, Offset: offset, Timestamp: time.Unix(50, 0), Key: r.Key, Value: r.Value, Headers: r.Headers}
}

var cause = Cause{Reason: "record_too_large", Err: errors.New("too large"), Source: "7000/5/orders"}

func TestLetter_IsReadAsItWasWritten(t *testing.T) {
	full := newRecord(0x1_0000_0010, 3, "k", `{"a":1}`)
	full.Partition, full.Timestamp = 7, time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	bare := newRecord(0x10, 1, "", "")
	bare.Topic, bare.Key, bare.Value, bare.Headers = "", nil, nil, nil
	for _, tt := range []struct {
		name    string
		rec     *record.Record
		missing []string
		keyed   bool
	}{
		{"whole", full, nil, true},
		{"nothing could be made", bare, []string{"topic", "key", "value", "headers"}, false},
		{"null key", func() *record.Record { r := newRecord(0x10, 1, "", "v"); r.Key = nil; return r }(), nil, false},
		{"empty key", newRecord(0x10, 1, "", "v"), nil, true},
		{"null value", func() *record.Record { r := newRecord(0x10, 1, "k", ""); r.Value = nil; return r }(), nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := cause
			c.Missing = tt.missing
			wrapped := Wrap(tt.rec, topic, c)
			if wrapped.Topic != topic || wrapped.Row != tt.rec.Row || !wrapped.Timestamp.IsZero() || wrapped.Partition != record.AutoPartition {
				t.Fatalf("record %+v", wrapped)
			}
			l, m, err := Parse(message(wrapped, 2, 9))
			if err != nil || m != nil {
				t.Fatal(m, err)
			}
			want := *tt.rec
			want.Row = nil
			got := l.Record
			if got.Topic != want.Topic || !bytes.Equal(got.Key, want.Key) || (got.Key == nil) != (want.Key == nil) || (got.Value == nil) != (want.Value == nil) ||
				!bytes.Equal(got.Value, want.Value) || got.Partition != want.Partition || !got.Timestamp.Equal(want.Timestamp) || fmt.Sprint(got.Headers) != fmt.Sprint(want.Headers) {
				t.Fatalf("record\n%+v, want\n%+v", got, want)
			}
			if l.Keyed != tt.keyed || l.Complete() != (tt.missing == nil) || !slices.Equal(l.Missing, tt.missing) {
				t.Fatalf("keyed %t, missing %v", l.Keyed, l.Missing)
			}
			if l.Reason != "record_too_large" || l.Message != "too large" || l.Table != "public.outbox" || l.Source != "7000/5/orders" || l.Commit != tt.rec.Row.Txn.Commit || l.Ordinal != tt.rec.Row.Ordinal {
				t.Fatalf("letter %+v", l)
			}
		})
	}
}

// Headers of a row that look like ours must not lead a redrive anywhere.
func TestLetter_HeadersOfTheRowCannotPoseAsOurs(t *testing.T) {
	rec := newRecord(0x10, 1, "k", "v")
	rec.Headers = append(rec.Headers, record.Header{Key: HeaderTopic, Value: []byte("payments")}, record.Header{Key: HeaderMissing, Value: []byte("value")})
	l, _, err := Parse(message(Wrap(rec, topic, cause), 0, 0))
	if err != nil || l.Record.Topic != "orders" || !l.Complete() {
		t.Fatalf("%+v, %v", l, err)
	}
}

func TestLetter_MessageIsBounded(t *testing.T) {
	c := cause
	c.Err = errors.New(strings.Repeat("ü", 5000) + "\xff")
	l, _, err := Parse(message(Wrap(newRecord(0x10, 1, "k", "v"), topic, c), 0, 0))
	if err != nil || len(l.Message) > maxMessage+4 || !strings.HasSuffix(l.Message, "ü…") {
		t.Fatalf("%d bytes, %v", len(l.Message), err)
	}
}

func TestStrip_TakesValueThenHeadersAndKeepsTheKey(t *testing.T) {
	rec := newRecord(0x10, 1, "k", "0123456789")
	rec.Headers = append(rec.Headers, record.Header{Key: record.HeaderLSN, Value: []byte("0/20")})
	w := Wrap(rec, topic, cause)
	var steps []string
	for Strip(&w) {
		l, _, err := Parse(message(w, 0, 0))
		if err != nil {
			t.Fatal(err)
		}
		names := ""
		for _, h := range l.Record.Headers {
			names += " " + h.Key
		}
		steps = append(steps, fmt.Sprintf("%v %d %s:%s", l.Missing, l.ValueBytes, l.Record.Key, names))
		if l.Group != KeyGroup("orders", []byte("k")) || l.Record.Value != nil {
			t.Fatalf("letter %+v", l)
		}
		if len(steps) > 5 {
			t.Fatal("it never ends")
		}
	}
	want := []string{"[value] 10 k: id eventType cdc-relay-lsn", "[value headers] 10 k: id cdc-relay-lsn"}
	if !slices.Equal(steps, want) {
		t.Fatalf("%q, want %q", steps, want)
	}
}

func TestMarker_IsReadAsItWasWritten(t *testing.T) {
	group := KeyGroup("orders", []byte("k"))
	for _, want := range []Marker{
		{Source: "7000/5/orders", Group: group, Outcome: Discarded, Partition: 3, Offsets: NewOffsets([]int64{9, 3, 5, 4, 9}), Through: wal.Place{Commit: 0x1_0000_0010, Ordinal: 4}},
		{Source: "7000/5/orders", Group: group, Outcome: Sent, Offsets: NewOffsets([]int64{0})},
	} {
		l, got, err := Parse(message(want.Record(topic, []byte("k")), want.Partition, 20))
		if err != nil || l != nil || !reflect.DeepEqual(*got, want) {
			t.Fatalf("%+v, %v, want %+v", got, err, want)
		}
	}
}

// markerOfVersion01 covers all letters of its group up to a row.
func markerOfVersion01(source string, group Group, through wal.Place) record.Record {
	m := Marker{Source: source, Group: group, Through: through, Outcome: Sent}
	rec := m.Record(topic, nil)
	rec.Headers = slices.DeleteFunc(rec.Headers, func(h record.Header) bool { return h.Key == HeaderOffsets })
	return rec
}

func TestOffsets_HoldWhatTheirTextSays(t *testing.T) {
	for _, tt := range []struct {
		at   []int64
		text string
	}{{nil, ""}, {[]int64{7}, "7"}, {[]int64{1, 0, 2}, "0-2"}, {[]int64{5, 3, 9, 4, 5}, "3-5,9"}} {
		set := NewOffsets(slices.Clone(tt.at))
		if set.String() != tt.text {
			t.Errorf("%v is %q, want %q", tt.at, set, tt.text)
		}
		read, err := parseOffsets(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		for offset := range int64(12) {
			want := slices.Contains(tt.at, offset)
			if set.Has(offset) != want || read.Has(offset) != want {
				t.Errorf("%q has %d: %t and %t, want %t", tt.text, offset, set.Has(offset), read.Has(offset), want)
			}
		}
	}
	for _, text := range []string{"x", "1,", "2-1", "3,3", "-1", "5,4", "1-4,2", "1--2"} {
		if set, err := parseOffsets(text); err == nil {
			t.Errorf("%q is read as %v", text, set)
		}
	}
}

func TestParse_NamesThePlaceOfWhatItCannotRead(t *testing.T) {
	good := Wrap(newRecord(0x10, 1, "k", "v"), topic, cause)
	for _, tt := range []struct{ name, header, value, want string }{
		{"somebody else's", "", "", "neither a dead letter"},
		{"position", HeaderLSN, "x", HeaderLSN},
		{"ordinal", HeaderSeq, "-1", HeaderSeq},
		{"group", HeaderGroup, "abc", HeaderGroup},
		{"partition", HeaderPartition, "1e3", HeaderPartition},
		{"timestamp", HeaderTimestamp, "today", HeaderTimestamp},
		{"size", HeaderValueSize, "-1", HeaderValueSize},
		{"position of the row", HeaderRowLSN, "", HeaderRowLSN},
		{"transaction of the row", HeaderRowXID, "4294967296", HeaderRowXID},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := good
			bad.Headers = append(slices.Clone(good.Headers), record.Header{Key: tt.header, Value: []byte(tt.value)})
			if tt.header == "" {
				bad.Headers = nil
			}
			_, _, err := Parse(message(bad, 3, 17))
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "partition 3, offset 17") {
				t.Fatalf("error %v", err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("k"), []byte("v"), HeaderLSN, []byte("0/10"))
	f.Add([]byte(nil), []byte(nil), HeaderGroup, []byte("00"))
	f.Add([]byte(""), []byte("{}"), HeaderDone, []byte("sent"))
	f.Fuzz(func(t *testing.T, key, value []byte, name string, header []byte) {
		rec := newRecord(0x10, 1, "k", string(value))
		rec.Key = key
		w := Wrap(rec, topic, cause)
		w.Headers = append(w.Headers, record.Header{Key: name, Value: header})
		l, m, err := Parse(message(w, 0, 0))
		if (err == nil) != (l != nil || m != nil) {
			t.Fatal(l, m, err)
		}
		if l != nil && !bytes.Equal(l.Record.Value, value) {
			t.Fatal("another value")
		}
	})
}

// log builds what a topic holds, and what is to be done of it.
type logOf struct {
	backlog *Backlog
	parked  *Parked
	offset  map[int32]int64
	filter  Filter
	cause   Cause
}

func newLog(filter Filter) *logOf {
	l := &logOf{backlog: newBacklog(), parked: NewParked(3, "orders"), offset: map[int32]int64{}, filter: filter, cause: cause}
	l.parked.Source("7000/5/orders")
	return l
}

func (l *logOf) put(r record.Record, partition int32) {
	m := message(r, partition, l.offset[partition])
	l.offset[partition]++
	l.backlog.add(m, l.filter)
	l.parked.Read(m)
}

func (l *logOf) letter(commit wal.LSN, key string) {
	l.put(Wrap(newRecord(commit, 1, key, "v"), topic, l.cause), 0)
}

// done writes a marker of an earlier build.
func (l *logOf) done(key string, through wal.LSN, partition int32) {
	l.put(markerOfVersion01("7000/5/orders", KeyGroup("orders", []byte(key)), wal.Place{Commit: through, Ordinal: 1}), partition)
}

// marked writes a marker into partition 0.
func (l *logOf) marked(key string, offsets ...int64) {
	m := Marker{Source: "7000/5/orders", Group: KeyGroup("orders", []byte(key)), Outcome: Sent, Offsets: NewOffsets(offsets)}
	l.put(m.Record(topic, []byte(key)), 0)
}

func (l *logOf) plan() string {
	var out []string
	for _, task := range l.backlog.Whole() {
		text := string(task.Entries[0].Record.Key) + ":"
		for _, e := range task.Entries {
			text += fmt.Sprintf(" %x", uint64(e.Commit))
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func TestBacklog_IsWhatNoMarkerCovers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		filter Filter
		log    func(l *logOf)
		plan   string
		parked int
	}{
		{"nothing", Filter{}, func(*logOf) {}, "", 0},
		{"whole keys, in the order of commits", Filter{}, func(l *logOf) { l.letter(0x30, "a"); l.letter(0x10, "a"); l.letter(0x20, "b") }, "a: 10 30; b: 20", 2},
		{"a marker covers the letters that it names", Filter{}, func(l *logOf) { l.letter(0x10, "a"); l.letter(0x20, "a"); l.letter(0x30, "a"); l.marked("a", 0, 2) }, "a: 20", 1},
		{"a marker of all frees the key", Filter{}, func(l *logOf) { l.letter(0x10, "a"); l.letter(0x20, "a"); l.marked("a", 0, 1) }, "", 0},
		{"a letter that the redrive did not read keeps the key", Filter{}, func(l *logOf) { l.letter(0x10, "a"); l.letter(0x20, "a"); l.marked("a", 0) }, "a: 20", 1},
		{"two markers free the key together", Filter{}, func(l *logOf) {
			l.letter(0x10, "a")
			l.letter(0x20, "b")
			l.letter(0x30, "a")
			l.marked("a", 1, 2)
			l.marked("a", 0)
		}, "b: 20", 1},
		{"a marker of another key", Filter{}, func(l *logOf) { l.letter(0x10, "a"); l.letter(0x20, "b"); l.marked("b", 0, 1) }, "a: 10", 1},
		{"a marker covers up to a row", Filter{}, func(l *logOf) { l.letter(0x10, "a"); l.letter(0x20, "a"); l.done("a", 0x10, 0) }, "a: 20", 1},
		{"all", Filter{}, func(l *logOf) { l.letter(0x10, "a"); l.letter(0x20, "a"); l.done("a", 0x20, 0) }, "", 0},
		{"a letter behind a marker counts again", Filter{}, func(l *logOf) { l.letter(0x10, "a"); l.done("a", 0x10, 0); l.letter(0x10, "a") }, "a: 10", 1},
		{"there twice", Filter{}, func(l *logOf) { l.letter(0x10, "a"); l.letter(0x20, "a"); l.letter(0x10, "a") }, "a: 10 10 20", 1},
		{"selected letters bring those of their key", Filter{Commit: 0x20}, func(l *logOf) { l.letter(0x10, "a"); l.letter(0x20, "a"); l.letter(0x30, "b") }, "a: 10 20", 2},
		{"keys by their first rows, whichever partition came first", Filter{}, func(l *logOf) {
			l.put(Wrap(newRecord(0x40, 1, "b", "v"), topic, cause), 1)
			l.put(Wrap(newRecord(0x30, 1, "c", "v"), topic, cause), 1)
			l.letter(0x50, "a")
			l.letter(0x20, "a")
		}, "a: 20 50; c: 30; b: 40", 3},
		{"of another key", Filter{Key: []byte("b")}, func(l *logOf) { l.letter(0x10, "a"); l.letter(0x30, "b") }, "b: 30", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLog(tt.filter)
			tt.log(l)
			if got := l.plan(); got != tt.plan || l.parked.Len() != tt.parked || l.parked.Err() != nil {
				t.Fatalf("plan %q, %d parked, %v; want %q, %d", got, l.parked.Len(), l.parked.Err(), tt.plan, tt.parked)
			}
		})
	}
}

func TestParked_IsBoundedAndByKey(t *testing.T) {
	p := NewParked(2, "")
	p.Source("s")
	a, b, c := KeyGroup("t", []byte("a")), KeyGroup("t", []byte("b")), KeyGroup("u", []byte("a"))
	at := func(commit wal.LSN, seq uint64) ID {
		return ID{Timeline: 1, Place: wal.Place{Commit: commit, Ordinal: seq}}
	}
	if err := errors.Join(p.Park(a, at(0x10, 1)), p.Park(b, at(0x10, 2)), p.Park(a, at(0x20, 1))); err != nil || p.Len() != 2 {
		t.Fatal(err, p.Len())
	}
	if err := p.Park(c, at(0x30, 1)); !errors.Is(err, ErrFull) {
		t.Fatalf("a third key: %v", err)
	}
	if p.Follow(c, at(0x30, 1)) || !p.Follow(a, at(0x30, 2)) {
		t.Fatal("topic and key make the group, not the key alone")
	}
	p.Source("other")
	if p.Len() != 0 || p.Follow(a, at(0x40, 1)) {
		t.Fatal("keys of another source are parked")
	}
	p.Source("s")
	if p.Len() != 2 {
		t.Fatal("the first source's keys are forgotten")
	}
	if p.Follow(b, at(0x10, 1)) {
		t.Fatal("a row from before the first that was set aside follows: it was delivered, and comes again")
	}
}

// A key is parked while a letter of it waits, and while one is on its way.
func TestParked_IsFreeWhenNothingWaitsAndNothingIsOnItsWay(t *testing.T) {
	p := NewParked(2, "")
	p.Source("s")
	rec := newRecord(0x10, 1, "a", "v")
	group := KeyGroup(rec.Topic, rec.Key)
	c := Cause{Reason: "r", Err: cause.Err, Source: "s", Timeline: 1}
	at := func(commit wal.LSN) ID { return ID{Timeline: 1, Place: wal.Place{Commit: commit, Ordinal: 1}} }
	marker := func(offsets ...int64) {
		m := Marker{Source: "s", Group: group, Outcome: Sent, Offsets: NewOffsets(offsets)}
		p.Read(message(m.Record(topic, rec.Key), 0, 100))
	}
	if err := p.Park(group, at(0x10)); err != nil {
		t.Fatal(err)
	}
	marker(50) // of letters that are there no more
	if !p.Follow(group, at(0x20)) {
		t.Fatal("the key is free while its letter is on its way")
	}
	if n := p.Waiting(); n != 0 {
		t.Fatalf("%d keys have a letter in the topic before it was read", n)
	}
	p.Read(message(Wrap(rec, topic, c), 0, 0))
	if n := p.Waiting(); n != 1 {
		t.Fatalf("%d keys have a letter in the topic, want the one that was read", n)
	}
	marker(0)
	if p.Len() != 1 || p.Waiting() != 0 {
		t.Fatal("the key is free while the letter of a row that followed is on its way")
	}
	p.Read(message(Wrap(newRecord(0x20, 1, "a", "v"), topic, c), 0, 1))
	marker(0)
	if p.Len() != 1 {
		t.Fatal("a marker that does not reach the last letter freed the key")
	}
	marker(0, 1)
	if p.Len() != 0 || p.Follow(group, at(0x30)) {
		t.Fatal("a marker of all letters did not free the key")
	}
	if err := p.Park(group, at(0x900)); err != nil {
		t.Fatal(err)
	}
	p.Gone(func(id ID) bool { return id.Commit >= 0x800 })
	if p.Len() != 0 {
		t.Fatal("the key waits for a letter of a row that exists no more")
	}
}

func TestParked_TopicWithTooManyKeysIsAnError(t *testing.T) {
	l := newLog(Filter{})
	for i := range 5 {
		l.letter(wal.LSN(0x10+i), string(rune('a'+i)))
	}
	if err := l.parked.Err(); !errors.Is(err, ErrFull) {
		t.Fatalf("error %v", err)
	}
}

func TestChunks_AreBoundedAndKeepOrder(t *testing.T) {
	var tasks []Task
	n := 0
	for _, size := range []int{1, chunkEntries + 5, 3, 2 * chunkEntries} {
		var g []*Entry
		for range size {
			n++
			g = append(g, &Entry{Letter: Letter{ID: ID{Place: wal.Place{Ordinal: uint64(n)}}}, Size: 10})
		}
		tasks = append(tasks, Task{Entries: g})
	}
	tasks = append(tasks, Task{Entries: []*Entry{{Size: 2 * chunkBytes, Letter: Letter{ID: ID{Place: wal.Place{Ordinal: uint64(n + 1)}}}}, {Size: 1, Letter: Letter{ID: ID{Place: wal.Place{Ordinal: uint64(n + 2)}}}}}})
	next := uint64(1)
	for _, part := range chunks(tasks, chunkEntries) {
		entries, bytes := 0, 0
		for _, p := range part {
			for _, e := range p.entries {
				if e.Ordinal != next {
					t.Fatalf("entry %d where %d belongs", e.Ordinal, next)
				}
				next, entries, bytes = next+1, entries+1, bytes+e.Size
			}
		}
		if entries > chunkEntries || bytes > chunkBytes && entries > 1 {
			t.Fatalf("a part of %d entries and %d bytes", entries, bytes)
		}
	}
	if next != uint64(n+3) {
		t.Fatalf("%d entries", next-1)
	}
}

// A part is as full as it may be, and has no piece of nothing.
func TestChunks_FillEachPart(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sizes [][]int // of the entries of each task
		want  string  // entries of each piece, the parts in brackets
	}{
		{"nothing", nil, "[]"},
		{"small tasks share a part", [][]int{{1}, {1, 1}}, "[[1 2]]"},
		{"exactly full", [][]int{{chunkBytes - 1, 1}}, "[[2]]"},
		{"a byte too many", [][]int{{chunkBytes, 1}}, "[[1] [1]]"},
		{"the second task does not fit", [][]int{{chunkBytes}, {1}}, "[[1] [1]]"},
		{"as many entries as fit", [][]int{{1, 1, 1}}, "[[3]]"},
		{"one more", [][]int{{1, 1, 1}, {1}}, "[[3] [1]]"},
	} {
		var tasks []Task
		for _, sizes := range tt.sizes {
			var task Task
			for _, size := range sizes {
				task.Entries = append(task.Entries, &Entry{Size: size})
			}
			tasks = append(tasks, task)
		}
		var got [][]int
		for _, part := range chunks(tasks, 3) {
			var pieces []int
			for _, p := range part {
				pieces = append(pieces, len(p.entries))
			}
			got = append(got, pieces)
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, got, tt.want)
		}
	}
}

// A message outside any transaction may end where the next commit record begins. Taken for
// one row, the second of the two would not be sent.
func TestWrap_TellsAMessageFromTheTransactionThatCommitsWhereItEnds(t *testing.T) {
	message, row := newRecord(0x20, 1, "a", "m"), newRecord(0x20, 1, "a", "r")
	message.Row.Txn.Time = time.Time{}
	var rows []wal.Place
	for _, rec := range []*record.Record{newRecord(0x10, 9, "a", "before"), message, row} {
		wrapped := Wrap(rec, topic, cause)
		l, _, err := Parse(&topics.Message{Topic: topic, Key: wrapped.Key, Headers: wrapped.Headers})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, l.Place)
	}
	if rows[0].Compare(rows[1]) >= 0 || rows[1].Compare(rows[2]) >= 0 {
		t.Errorf("%v are not in the order of the stream", rows)
	}
}

// A row may have any header. One that is named as a marker's does not hide its letter.
func TestLetter_HeaderNamedAsAMarkersIsKept(t *testing.T) {
	rec := newRecord(0x10, 1, "k", "v")
	rec.Headers = append(rec.Headers, record.Header{Key: HeaderDone, Value: []byte(Sent)})
	l, m, err := Parse(message(Wrap(rec, topic, cause), 0, 0))
	if err != nil || m != nil || fmt.Sprint(l.Record.Headers) != fmt.Sprint(rec.Headers) {
		t.Fatalf("%+v, %v, %v", l, m, err)
	}
}

// A marker begins a range behind the letter that waits before it.
func TestMarker_RangesMeetWhereNothingWaits(t *testing.T) {
	var waiting []*Entry
	for _, offset := range []int64{5, 9, 12, 20} {
		waiting = append(waiting, &Entry{Letter: Letter{Offset: offset}})
	}
	for _, tt := range []struct {
		done []int64
		want string
	}{{nil, ""}, {[]int64{5}, "0-5"}, {[]int64{9}, "6-9"}, {[]int64{9, 12}, "6-12"}, {[]int64{5, 20}, "0-5,13-20"}, {[]int64{5, 9, 12, 20}, "0-20"}} {
		if got := coverage(waiting, func(e *Entry) bool { return slices.Contains(tt.done, e.Offset) }).String(); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.done, got, tt.want)
		}
	}
}

func TestMarker_OffsetsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, text := range []string{"", "-", "3-2", "-1-2", "0-30", "30", "0-x", "0-1,", "4,2"} {
		rec := markerOfVersion01("s", KeyGroup("orders", nil), wal.Place{})
		rec.Headers = append(rec.Headers, record.Header{Key: HeaderOffsets, Value: []byte(text)})
		if _, m, err := Parse(message(rec, 0, 30)); err == nil || !strings.Contains(err.Error(), HeaderOffsets) {
			t.Errorf("%q: %+v, %v", text, m, err)
		}
	}
}

// The topic was made again: its letters are gone, and offsets begin anew.
func TestParked_ForgetsWhatATopicHeldThatWasMadeAgain(t *testing.T) {
	p := NewParked(10, "")
	p.Source("s")
	c := Cause{Reason: "r", Err: cause.Err, Source: "s", Timeline: 1}
	read, coming := newRecord(0x10, 1, "a", "v"), newRecord(0x20, 1, "b", "v")
	for _, rec := range []record.Record{*read, *coming} {
		if err := p.Park(KeyGroup(rec.Topic, rec.Key), ID{Timeline: 1, Place: wal.Place{Commit: rec.Row.Txn.Commit, Ordinal: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	p.Read(message(Wrap(read, topic, c), 0, 50))
	p.Read(nil)
	if p.Len() != 1 || p.Follow(KeyGroup(read.Topic, read.Key), ID{Timeline: 1, Place: wal.Place{Commit: 0x30, Ordinal: 1}}) {
		t.Fatalf("%d keys are parked, want the one whose letter is on its way", p.Len())
	}
	p.Read(message(Wrap(coming, topic, c), 0, 0))
	p.Read(message(Wrap(newRecord(0x30, 1, "b", "v"), topic, c), 0, 1))
	m := Marker{Source: "s", Group: KeyGroup(coming.Topic, coming.Key), Outcome: Sent, Offsets: NewOffsets([]int64{0})}
	p.Read(message(m.Record(topic, coming.Key), 0, 2))
	if p.Len() != 1 {
		t.Fatal("a marker that does not reach the last letter freed the key")
	}
}

// Letters of two databases whose slots have one name have two sources. A text that is no source is
// nobody's.
func TestSource_SplitsIntoWhatItWasMadeOf(t *testing.T) {
	for _, tt := range []struct{ source, system, database, slot string }{
		{SourceID("7301", "16384", "orders"), "7301", "16384", "orders"},
		{SourceID("7301", "5", "orders_2_0"), "7301", "5", "orders_2_0"},
		{"7301/orders", "", "", ""}, {"7301//orders", "", "", ""}, {"7301/5/orders/", "", "", ""}, {"/5/orders", "", "", ""}, {"7301/5/", "", "", ""}, {"", "", "", ""},
	} {
		if system, database, slot := SplitSource(tt.source); system != tt.system || database != tt.database || slot != tt.slot {
			t.Errorf("%q: %q, %q, %q", tt.source, system, database, slot)
		}
	}
}
