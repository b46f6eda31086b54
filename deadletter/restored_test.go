package deadletter

import (
	"context"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

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
	old := func(w record.Record) record.Record { // as version 0.1 wrote it
		at := headerAt(w.Headers, HeaderValueHash)
		w.Headers = append(w.Headers[:at:at], w.Headers[at+1:]...)
		return w
	}
	for name, tt := range map[string]struct {
		letter            record.Record
		now               Restored
		changed, unproven int
		refused           string
	}{
		"the same row":                           {letter: stripped(keyed("large")), now: Restored{Record: keyed("large")}},
		"changed since":                          {letter: stripped(keyed("large")), now: Restored{Record: keyed("small")}, changed: 1},
		"the same row without a key":             {letter: stripped(keyless("large")), now: Restored{Record: keyless("large")}},
		"another row without a key":              {letter: stripped(keyless("large")), now: Restored{Record: keyless("other")}, refused: "no key of its own tells it from others"},
		"another row, whose id is its key":       {letter: stripped(byID("large")), now: Restored{Record: byID("other")}, refused: "another row"},
		"the same row, whose id is its key":      {letter: stripped(byID("large")), now: Restored{Record: byID("large")}},
		"another row of the same size, no key":   {letter: stripped(keyless("large")), now: Restored{Record: keyless("LARGE")}, refused: "another row"},
		"of version 0.1, with a key":             {letter: old(stripped(keyed("large"))), now: Restored{Record: keyed("small")}},
		"of version 0.1, without a key":          {letter: old(stripped(keyless("large"))), now: Restored{Record: keyless("small")}, unproven: 1},
		"of the payload, in a format by now":     {letter: wrapped(keyless("[1]"), router.PartValue), now: Restored{Record: keyless(`{"payload":[1]}`), Payload: []byte("[1]")}},
		"of the payload of another row":          {letter: wrapped(keyless("[1]"), router.PartValue), now: Restored{Record: keyless(`{"payload":[2]}`), Payload: []byte("[2]")}, refused: "another row"},
		"of a large payload, in a format by now": {letter: stripped(keyless("[1]"), router.PartValue), now: Restored{Record: keyless(`{"payload":[1]}`), Payload: []byte("[1]")}},
		"whole but for its topic":                {letter: wrapped(keyless("v"), router.PartTopic), now: Restored{Record: keyless("v")}},
		"whole but for its topic, another row":   {letter: wrapped(keyless("v"), router.PartTopic), now: Restored{Record: keyless("w")}, refused: "another row"},
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
					Restore: func(context.Context, *Letter) (Restored, error) { return tt.now, nil },
				}
				outcome := r.perform(t.Context(), chunk{&task, task.Entries}, map[Location]*Letter{{}: parsed})
				if tt.refused != "" {
					if outcome.Done != 0 || outcome.Err == nil || !strings.Contains(outcome.Err.Error(), tt.refused) || len(out.Delivered()) > 0 {
						t.Errorf("plan %t: outcome %+v", plan, outcome)
					}
					continue
				}
				if outcome.Done != 1 || outcome.Err != nil || outcome.Changed != tt.changed || outcome.Unproven != tt.unproven {
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
