package rejected

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/replication/wal/waltest"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
)

// Thousands of rejected rows are as many counts and two lines a minute.
func TestLog_HasRowsThatAreSetAsideOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := Log{Out: zerolog.New(&log)}
		reject := func(table, reason string, n int) {
			for i := range n {
				l.Aside(reason, &wal.Row{
					Relation: &wal.Relation{Namespace: "public", Name: table}, Ordinal: uint64(i + 1), Txn: &wal.Txn{Commit: 0x100},
				}, errors.New("refused"))
			}
		}
		said := func(want ...string) {
			t.Helper()
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			for i, w := range want {
				if len(lines) != len(want) || !strings.Contains(lines[i], w) {
					t.Fatalf("want %q in:\n%s", want, &log)
				}
			}
			log.Reset()
		}
		reject("a", "route", 30_000)
		reject("a", "too_large", 1)
		reject("b", "route", 1)
		l.Flush(time.Now(), false)
		said(`"reason":"route","table":"public.a","rows":1,`, `"reason":"too_large","table":"public.a","rows":1,`, `"table":"public.b","rows":1,`)
		<-time.After(Every)
		l.Flush(time.Now(), false)
		said(`"reason":"route","table":"public.a","rows":29999,"lsn":"0/FF","seq":30000`)
		reject("a", "route", 2)
		l.Flush(time.Now(), true)
		said(`"rows":2,`)
	})
}

// unreadable letters have a topic that cannot be read.
type unreadableLetters struct{ err error }

func (u unreadableLetters) Run(context.Context, func(*topics.Message)) {}
func (u unreadableLetters) CatchUp(context.Context, bool) error        { return u.err }
func (u unreadableLetters) Close()                                     {}

// A dead-letter topic that is not there yet has no letters, where the relay makes it.
func TestDeadLetters_ATopicThatIsNotThereYetIsEmpty(t *testing.T) {
	for _, c := range []struct {
		reason string
		makes  bool
		fails  bool
	}{{"unknown_topic", true, false}, {"unknown_topic", false, true}, {"network", true, true}} {
		l := NewLetters("letters", c.makes, "", unreadableLetters{&sink.Error{Reason: c.reason, Err: errors.New("no")}}, 1)
		if err := l.CatchUp(t.Context(), time.Second, true); (err != nil) != c.fails {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Rejects are remembered up to a number of them, the last ones.
func TestLog_ForgetsTheOldest(t *testing.T) {
	var r recent
	row := func(n int) wal.Place { return wal.Place{Commit: wal.LSN(n)} }
	for n := range maxRecent {
		if !r.add(row(n)) {
			t.Fatalf("row %d is known", n)
		}
	}
	if r.add(row(0)) || !r.add(row(maxRecent)) || r.add(row(1)) || !r.add(row(0)) || r.add(row(2)) {
		t.Error("not the last ones are known")
	}
}

// Who finds the letter later can see that later rows were to wait for it, whatever the settings say
// by then.
func TestDeadLetters_SayWhetherTheirKeyIsParked(t *testing.T) {
	row := waltest.TextRow(waltest.Table("id int8"), "1")
	for _, c := range []struct {
		name    string
		journal Journal
		key     []byte
		want    bool
	}{
		{"keys are parked", unreadableLetters{}, []byte("a"), true},
		{"a row without a key", unreadableLetters{}, nil, false},
		{"keys are not parked", nil, []byte("a"), false},
	} {
		l := NewLetters("letters", false, "slot", c.journal, 1)
		l.Source("7/5/slot")
		rec := l.Wrap(wal.Origin{Timeline: 1}, &record.Record{Topic: "orders", Key: c.key, Row: row, Partition: record.AutoPartition}, "route", errors.New("no"))
		letter, _, err := deadletter.Parse(&topics.Message{Topic: rec.Topic, Key: rec.Key, Headers: rec.Headers})
		if err != nil || letter.Parks != c.want {
			t.Errorf("%s: parks %t, %v", c.name, letter != nil && letter.Parks, err)
		}
	}
}

// A letter names its row by the column that the mapping had when it was written.
func TestDeadLetters_SayWhichColumnTheirIDIsOf(t *testing.T) {
	rel := waltest.Table("id int8", "key int8")
	routes, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Preset: "generic", Topic: "t", Columns: router.Columns{ID: "key", Payload: "id"}}}})
	if err != nil {
		t.Fatal(err)
	}
	l := NewLetters("letters", false, "slot", nil, 1)
	l.IDColumn = routes.IDColumn
	l.Source("7/5/slot")
	rec := l.Wrap(wal.Origin{Timeline: 1}, &record.Record{Topic: "orders", Row: waltest.TextRow(rel, "1", "2"), Partition: record.AutoPartition}, "route", errors.New("no"))
	letter, _, err := deadletter.Parse(&topics.Message{Topic: rec.Topic, Headers: rec.Headers})
	if err != nil || letter.Of != (deadletter.Table{Known: true, OID: rel.OID, ID: record.IDColumn{Name: "key", Type: rel.Columns[1].Type}}) {
		t.Errorf("%+v, %v", letter, err)
	}
}
