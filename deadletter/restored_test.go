package deadletter

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// framed begins a value by schema 7.
const framed = "\x00\x00\x00\x00\x07"

// rowsOf has the table give these rows, whatever the letter.
func rowsOf(rows ...Restored) func(context.Context, *Letter) iter.Seq2[Restored, error] {
	return func(context.Context, *Letter) iter.Seq2[Restored, error] {
		return func(yield func(Restored, error) bool) {
			for _, now := range rows {
				if !yield(now, nil) {
					return
				}
			}
		}
	}
}

// oneRow has it give one row, or fail.
func oneRow(row func(*Letter) (Restored, error)) func(context.Context, *Letter) iter.Seq2[Restored, error] {
	return func(_ context.Context, l *Letter) iter.Seq2[Restored, error] {
		return func(yield func(Restored, error) bool) { yield(row(l)) }
	}
}

// The row that has a letter's event id may have been changed, or be another one: ids that
// are counted begin again when a table is emptied.
func TestRedriver_ComparesTheRowWithTheLetter(t *testing.T) {
	stripped := func(rec *record.Record, missing ...string) record.Record {
		c := cause
		c.Timeline, c.Missing = 1, missing
		w := Wrap(rec, topic, c)
		Strip(&w)
		return w
	}
	keyed := func(value string) *record.Record { return newRecord(0x10, 1, "a", value) }
	keyless := func(value string) *record.Record {
		rec := newRecord(0x10, 1, "", value)
		rec.Key = nil
		return rec
	}
	byID := func(value string) *record.Record {
		rec := newRecord(0x10, 1, "", value)
		for _, h := range rec.Headers {
			if h.Key == "id" {
				rec.Key = h.Value
			}
		}
		return rec
	}
	wrapped := func(rec *record.Record, missing ...string) record.Record {
		c := cause
		c.Timeline, c.Missing = 1, missing
		return Wrap(rec, topic, c)
	}
	old := func(w record.Record) record.Record { // as an earlier build wrote it
		at := headerAt(w.Headers, HeaderValueHash)
		w.Headers = append(w.Headers[:at:at], w.Headers[at+1:]...)
		return w
	}
	for name, tt := range map[string]struct {
		letter            record.Record
		now               Restored
		changed, unproven int
		recoded           int
		refused           string
	}{
		"the same row":                           {letter: stripped(keyed("large")), now: Restored{Record: keyed("large")}},
		"changed since":                          {letter: stripped(keyed("large")), now: Restored{Record: keyed("small")}, changed: 1},
		"the same row without a key":             {letter: stripped(keyless("large")), now: Restored{Record: keyless("large")}},
		"another row without a key":              {letter: stripped(keyless("large")), now: Restored{Record: keyless("other")}, refused: "no key of its own tells it from others"},
		"another row, whose id is its key":       {letter: stripped(byID("large")), now: Restored{Record: byID("other")}, refused: "another row"},
		"the same row, whose id is its key":      {letter: stripped(byID("large")), now: Restored{Record: byID("large")}},
		"another row of the same size, no key":   {letter: stripped(keyless("large")), now: Restored{Record: keyless("LARGE")}, refused: "another row"},
		"of an earlier build, with a key":        {letter: old(stripped(keyed("large"))), now: Restored{Record: keyed("small")}},
		"of an earlier build, without a key":     {letter: old(stripped(keyless("large"))), now: Restored{Record: keyless("small")}, unproven: 1},
		"of the payload, in a format by now":     {letter: wrapped(keyless("[1]"), router.PartValue), now: Restored{Record: keyless(`{"payload":[1]}`), Payload: []byte("[1]")}},
		"of the payload of another row":          {letter: wrapped(keyless("[1]"), router.PartValue), now: Restored{Record: keyless(`{"payload":[2]}`), Payload: []byte("[2]")}, refused: "another row"},
		"of a large payload, in a format by now": {letter: stripped(keyless("[1]"), router.PartValue), now: Restored{Record: keyless(`{"payload":[1]}`), Payload: []byte("[1]")}},
		"whole but for its topic":                {letter: wrapped(keyless("v"), router.PartTopic), now: Restored{Record: keyless("v")}},
		"whole but for its topic, another row":   {letter: wrapped(keyless("v"), router.PartTopic), now: Restored{Record: keyless("w")}, refused: "another row"},
		"its schema is gone":                     {letter: stripped(keyed(framed + "old")), now: Restored{Record: keyed("\x00\x00\x00\x00\x08new"), Recoded: true}, recoded: 1},
		"its schema is gone, without a key":      {letter: stripped(keyless(framed + "old")), now: Restored{Record: keyless("\x00\x00\x00\x00\x08new"), Recoded: true}, refused: "schema 7, which encoded its value, is not in the registry any more"},
		"its schema is gone, another key":        {letter: stripped(byID(framed + "old")), now: Restored{Record: keyed("\x00\x00\x00\x00\x08new"), Recoded: true}, refused: "makes another key"},
		"its key is missing":                     {letter: wrapped(keyless("v"), router.PartKey), now: Restored{Record: keyed("w")}, refused: "another row"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(Filter{})
			l.put(tt.letter, 0)
			task := l.backlog.Whole()[0]
			parsed, _, err := Parse(message(tt.letter, 0, 0))
			if err != nil {
				t.Fatal(err)
			}
			for _, plan := range []bool{true, false} {
				var out sinktest.Recorder
				r := &Redriver{
					Sink: &out, Topic: topic, DryRun: plan, Own: func(string) bool { return true },
					Restore: rowsOf(tt.now),
				}
				outcome := r.perform(t.Context(), chunk{&task, task.Entries}, map[Location]*Letter{{}: parsed})
				if tt.refused != "" {
					if outcome.Done != 0 || outcome.Err == nil || !strings.Contains(outcome.Err.Error(), tt.refused) || len(out.Delivered()) > 0 {
						t.Errorf("plan %t: outcome %+v", plan, outcome)
					}
					continue
				}
				if outcome.Done != 1 || outcome.Err != nil || outcome.Changed != tt.changed || outcome.Unproven != tt.unproven || outcome.Recoded != tt.recoded {
					t.Errorf("plan %t: outcome %+v", plan, outcome)
				}
			}
		})
	}
}

// Where the value alone was too large, all else is the letter's. Where no value could be made,
// the headers that belong to one, such as its content type, come with it from the row.
func TestCompleted_TakesTheHeadersOfAValueThatCouldNotBeMade(t *testing.T) {
	made := record.Record{Topic: "orders", Value: []byte("v"), Headers: []record.Header{{Key: "content-type", Value: []byte("new")}}}
	for bytes, want := range map[int64]string{0: "content-type new,lsn 1,", 9: "content-type old,lsn 1,"} {
		l := &Letter{Missing: []string{router.PartValue}, ValueBytes: bytes}
		l.Record = record.Record{Topic: "orders", Headers: []record.Header{{Key: "content-type", Value: []byte("old")}, {Key: record.HeaderLSN, Value: []byte("1")}}}
		got, text := l.completed(&made), ""
		for _, h := range got.Headers {
			text += h.Key + " " + string(h.Value) + ","
		}
		if string(got.Value) != "v" || text != strings.ReplaceAll(want, "lsn", record.HeaderLSN) {
			t.Errorf("%d bytes: value %q, headers %s, want %s", bytes, got.Value, text, want)
		}
	}
	if len(made.Headers) != 1 {
		t.Errorf("the record of the row got headers: %v", made.Headers)
	}
}

// Several rows have the event id of a letter. The one whose value was set aside is taken, and no
// other: the rows may all have the letter's key.
func TestRedriver_ChoosesAmongRowsOfOneEventID(t *testing.T) {
	keyed := func(key, value string) Restored { return Restored{Record: newRecord(0x10, 1, key, value)} }
	routed := func(value, to string) Restored {
		rec := newRecord(0x10, 1, "a", value)
		rec.Topic = to
		return Restored{Record: rec}
	}
	broken := Restored{Err: errors.New("no topic")}
	gone := Restored{Record: newRecord(0x10, 1, "a", "new"), Recoded: true}
	large, unhashed, unrouted := newRecord(0x10, 1, "a", "large"), newRecord(0x10, 1, "a", "large"), newRecord(0x10, 1, "a", "large")
	for name, tt := range map[string]struct {
		rec     *record.Record
		rows    []Restored
		sent    string // topic and value
		refused string
	}{
		"the second":                      {large, []Restored{keyed("a", "1"), keyed("a", "large"), keyed("a", "3")}, "orders large", ""},
		"the last, after one of no use":   {large, []Restored{broken, keyed("a", "large")}, "orders large", ""},
		"the first, before one of no use": {large, []Restored{keyed("a", "large"), broken}, "orders large", ""},
		"two that are alike":              {large, []Restored{keyed("a", "large"), keyed("a", "large"), keyed("a", "3")}, "orders large", ""},
		"one of another key":              {large, []Restored{keyed("b", "large"), keyed("a", "3")}, "", "2 rows have its event id, none of them with the value that was set aside"},
		"none":                            {large, []Restored{keyed("a", "1"), keyed("a", "2"), keyed("a", "3")}, "", "3 rows have its event id, none of them with the value that was set aside: restore that row as it was, or discard the letter"},
		"none, one of no use":             {large, []Restored{broken, broken}, "", "2 rows have its event id"},
		"one of no use alone":             {large, []Restored{broken}, "", "no topic"},
		"two topics":                      {unrouted, []Restored{routed("large", "x"), routed("large", "y")}, "", "the rest of their records differs"},
		"one topic":                       {unrouted, []Restored{routed("large", "x"), routed("other", "y"), routed("large", "x")}, "x large", ""},
		"no hash, two of its key":         {unhashed, []Restored{keyed("a", "1"), keyed("a", "large")}, "", "nothing in the letter tells which of them was set aside"},
		"no hash, one of its key":         {unhashed, []Restored{keyed("b", "1"), keyed("a", "large")}, "orders large", ""},
		"its schema is gone":              {large, []Restored{gone, gone}, "", "is not in the registry any more"},
	} {
		t.Run(name, func(t *testing.T) {
			c := cause
			c.Timeline = 1
			if tt.rec == unrouted {
				c.Missing = []string{router.PartTopic}
			}
			rec := *tt.rec
			if tt.rec == unrouted {
				rec.Topic = ""
			}
			w := Wrap(&rec, topic, c)
			if tt.rec != unrouted {
				Strip(&w)
			}
			if at := headerAt(w.Headers, HeaderValueHash); tt.rec == unhashed {
				w.Headers = append(w.Headers[:at:at], w.Headers[at+1:]...)
			}
			l := newLog(Filter{})
			l.put(w, 0)
			task := l.backlog.Whole()[0]
			parsed, _, err := Parse(message(w, 0, 0))
			if err != nil {
				t.Fatal(err)
			}
			var out sinktest.Recorder
			r := &Redriver{Sink: &out, Topic: topic, Own: func(string) bool { return true }, Restore: rowsOf(tt.rows...)}
			outcome := r.perform(t.Context(), chunk{&task, task.Entries}, map[Location]*Letter{{}: parsed})
			if tt.refused != "" {
				if outcome.Done != 0 || outcome.Err == nil || !strings.Contains(outcome.Err.Error(), tt.refused) || len(out.Delivered()) > 0 {
					t.Errorf("outcome %+v", outcome)
				}
				return
			}
			if outcome.Err != nil || outcome.Done != 1 || outcome.Changed+outcome.Unproven+outcome.Recoded > 0 {
				t.Fatalf("outcome %+v", outcome)
			}
			if d := out.Delivered()[0]; d.Topic+" "+string(d.Value) != tt.sent {
				t.Errorf("sent %s %q, want %q", d.Topic, d.Value, tt.sent)
			}
		})
	}
}

// What makes the same record again: the time of the commit, and the schema of the value.
func TestLetter_KeepsWhatMakesItsRecordAgain(t *testing.T) {
	committed := time.Date(2024, 2, 29, 12, 0, 0, 500_000, time.UTC)
	wrapped := func(value string, at time.Time, missing ...string) record.Record {
		rec := newRecord(0x10, 1, "a", value)
		rec.Row.Txn.Time = at
		c := cause
		c.Missing = missing
		return Wrap(rec, topic, c)
	}
	stripped := func(w record.Record) record.Record { Strip(&w); return w }
	positioned := wrapped("v", time.Time{})
	positioned.Headers = append([]record.Header{{Key: record.HeaderCommitTime, Value: []byte("2024-02-29T12:00:00.0005Z")}}, positioned.Headers...)
	for name, tt := range map[string]struct {
		w         record.Record
		schema    uint32
		committed time.Time
	}{
		"a value by a schema":              {wrapped(framed+"x", committed), 7, committed},
		"the same, left out":               {stripped(wrapped(framed+"x", committed)), 7, committed},
		"by the last number of a schema":   {stripped(wrapped("\x00\x7f\xff\xff\xffx", committed)), math.MaxInt32, committed},
		"by a number that no schema has":   {stripped(wrapped("\x00\x80\x00\x00\x00x", committed)), 0, committed},
		"a value by none":                  {stripped(wrapped(`{"n": 1}`, committed)), 0, committed},
		"a payload of which none was made": {stripped(wrapped(framed+"x", committed, router.PartValue)), 0, committed},
		"a message outside a transaction":  {wrapped("v", time.Time{}), 0, time.Time{}},
		"position headers alone":           {positioned, 0, committed},
	} {
		l, _, err := Parse(message(tt.w, 0, 0))
		if at := headerAt(tt.w.Headers, HeaderValueSchema); at >= 0 && string(tt.w.Headers[at].Value) == "0" {
			t.Errorf("%s: a schema is named that no registry has", name)
		}
		if err != nil || l.Schema != tt.schema || !l.Committed.Equal(tt.committed) {
			t.Errorf("%s: schema %d, committed %s: %v", name, l.Schema, l.Committed, err)
		}
	}
}

// What a record may say of its row besides the columns.
func TestLetter_KeepsTheOriginOfARow(t *testing.T) {
	for name, want := range map[string]Origin{
		"an insert":            {LSN: 0x1_0000_0020, XID: 1<<32 - 1},
		"an update":            {LSN: 0x20, XID: 7, Change: wal.Update},
		"a delete":             {LSN: 0x20, XID: 7, Change: wal.Delete},
		"a row from its table": {},
	} {
		rec := newRecord(0x10, 1, "a", "v")
		rec.Row.LSN, rec.Row.Txn.XID = want.LSN, want.XID
		if want.Change != 0 {
			rec.Row.Change = &wal.Change{Op: want.Change}
		}
		w := Wrap(rec, topic, cause)
		for Strip(&w) {
		}
		if l, _, err := Parse(message(w, 0, 0)); err != nil || l.Origin != want {
			t.Errorf("%s: %+v, want %+v: %v", name, l.Origin, want, err)
		}
		if at := headerAt(w.Headers, HeaderRowLSN); (at >= 0) != (want.LSN != 0) {
			t.Errorf("%s: %v", name, w.Headers)
		}
		if at := headerAt(w.Headers, HeaderRowXID); (at >= 0) != (want.XID != 0) {
			t.Errorf("%s: %v", name, w.Headers)
		}
	}
}

// A letter says of which table it is whatever that is called later, and by which column it names its row.
func TestLetter_NamesItsTableAndTheColumnOfItsID(t *testing.T) {
	for name, tt := range map[string]struct {
		rel  *wal.Relation
		id   record.IDColumn
		want Table
	}{
		"a column":            {&wal.Relation{OID: 1<<32 - 1, Namespace: "public", Name: "outbox"}, record.IDColumn{Name: "id", Type: 1<<32 - 1}, Table{Known: true, OID: 1<<32 - 1, ID: record.IDColumn{Name: "id", Type: 1<<32 - 1}}},
		"no column":           {&wal.Relation{OID: 7, Namespace: "public", Name: "outbox"}, record.IDColumn{}, Table{Known: true, OID: 7}},
		"a table of messages": {&wal.Relation{OID: 7, Namespace: "message", Name: "events"}, record.IDColumn{Name: "id", Type: 25}, Table{Known: true, OID: 7, ID: record.IDColumn{Name: "id", Type: 25}}},
		"a message":           {wal.MessageRelation("events", 0), record.IDColumn{Name: "body", Type: 114}, Table{Known: true}},
	} {
		rec, c := newRecord(0x10, 1, "a", "v"), cause
		rec.Row.Relation, c.ID = tt.rel, tt.id
		w := Wrap(rec, topic, c)
		for Strip(&w) {
		}
		l, _, err := Parse(message(w, 0, 0))
		if err != nil || l.Of != tt.want {
			t.Errorf("%s: %+v, want %+v: %v", name, l.Of, tt.want, err)
		}
		// An earlier build says nothing of it.
		w.Headers = slices.DeleteFunc(w.Headers, func(h record.Header) bool {
			return slices.Contains([]string{HeaderTableOID, HeaderIDColumn, HeaderIDType}, h.Key)
		})
		if l, _, err := Parse(message(w, 0, 0)); err != nil || l.Of != (Table{}) {
			t.Errorf("%s, of an earlier build: %+v, %v", name, l.Of, err)
		}
	}
}
