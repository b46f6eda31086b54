package deadletter

import (
	"context"
	"iter"
	"reflect"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// What a message was routed with is in its letter, so that it is routed alike later.
func TestMessageRow_IsTheMessageOfTheLetter(t *testing.T) {
	for name, inside := range map[string]bool{"in a transaction": true, "outside any": false} {
		for _, shape := range []string{"lm", wal.AnyPrefix} {
			t.Run(name+" "+shape, func(t *testing.T) {
				rel := wal.MessageRelation(shape, 1)
				row := wal.NewMessage(rel, "lm", []byte("no json"))
				row.LSN, row.Ordinal, row.Txn.Commit = 0x21, 3, 0x30
				if inside {
					row.Txn.XID, row.Txn.Time = 7_000_000_000%(1<<32), time.Date(2026, 1, 31, 8, 0, 0, 5000, time.UTC)
				}
				c := cause
				c.Missing = []string{router.PartTopic, router.PartValue}
				w := Wrap(&record.Record{Value: row.Body(), Row: row, Partition: record.AutoPartition}, topic, c)
				if Strip(&w) {
					t.Error("the letter of a message was shortened")
				}
				if headerAt(w.Headers, HeaderRowLSN) >= 0 || headerAt(w.Headers, HeaderRowXID) >= 0 {
					t.Errorf("what is a message's is also a row's: %v", w.Headers)
				}
				l, _, err := Parse(message(w, 0, 0))
				if err != nil {
					t.Fatal(err)
				}
				if got := l.MessageRow(rel); !reflect.DeepEqual(got, row) {
					t.Errorf("%+v %+v, want %+v %+v", got, got.Txn, row, row.Txn)
				}
			})
		}
	}
}

// The mapping was corrected: the key may be another one, and nothing is compared, as there is no
// other row that could have been taken.
func TestRedriver_SendsWhatTheBodyOfAMessageMakes(t *testing.T) {
	row := wal.NewMessage(wal.MessageRelation("lm", 0), "lm", []byte(`{"k": "b"}`))
	row.Txn.Commit = 0x30
	c := cause
	c.Missing = []string{router.PartTopic, router.PartValue}
	w := Wrap(&record.Record{Key: []byte("a"), Value: row.Body(), Row: row, Partition: record.AutoPartition}, topic, c)
	l := newLog(Filter{})
	l.put(w, 0)
	task := l.backlog.Whole()[0]
	parsed, _, err := Parse(message(w, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	var out sinktest.Recorder
	made := newRecord(0x30, 1, "b", "v")
	outcome := (&Redriver{
		Sink: &out, Topic: topic, Own: func(string) bool { return true },
		Restore: func(context.Context, *Letter) iter.Seq2[Restored, error] {
			return func(yield func(Restored, error) bool) { yield(Restored{Record: made}, nil) }
		},
	}).perform(t.Context(), chunk{&task, task.Entries}, map[Location]*Letter{{}: parsed})
	if outcome.Done != 1 || outcome.Err != nil || outcome.Changed+outcome.Unproven != 0 {
		t.Errorf("outcome %+v", outcome)
	}
	if got := out.Delivered(); len(got) == 0 || string(got[0].Key) != "b" || string(got[0].Value) != "v" {
		t.Errorf("sent %+v", got)
	}
}
