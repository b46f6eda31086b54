package tail

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

var outbox = &wal.Relation{Namespace: "public", Name: "outbox"}

func batch(topic, key string, n int, committed time.Time) (all []record.Record) {
	row := &wal.Row{Txn: &wal.Txn{Time: committed}, Relation: outbox}
	for i := range n {
		all = append(all, record.Record{Topic: topic, Key: []byte(key), Value: []byte("the payload"), Headers: []record.Header{{Key: "id", Value: fmt.Appendf(nil, "%s-%d", topic, i)}}, Row: row})
	}
	return all
}

func TestTail_ShowsTheFirstRowOfEachFlowAndCountsTheRest(t *testing.T) {
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	tail := &Tail{now: func() time.Time { return now }}
	tail.Delivered(batch("orders", "before", 5, now)) // nobody looks
	all, bills := tail.Open("", ""), tail.Open("", "bills")
	tail.Delivered(batch("orders", "secret-key", 900, now.Add(-250*time.Millisecond)))
	tail.Delivered(batch("bills", "secret-key", 40, now))
	lines, passed := all.Next()
	if len(lines) != 2 || passed != 940 {
		t.Fatalf("%d of %d rows: %+v", len(lines), passed, lines)
	}
	if l := lines[0]; l.Table != "public.outbox" || l.Topic != "orders" || l.EventID != "orders-0" || l.Bytes != 11 || *l.Age != 250 || len(l.Key) != 12 {
		t.Errorf("%+v", l)
	}
	if lines[0].Key != lines[1].Key || strings.Contains(fmt.Sprintf("%+v", lines), "secret-key") || strings.Contains(fmt.Sprintf("%+v", lines), "payload") {
		t.Errorf("%+v", lines)
	}
	if lines, passed := bills.Next(); len(lines) != 1 || passed != 40 || lines[0].Topic != "bills" {
		t.Errorf("of one topic: %d %+v", passed, lines)
	}
	if lines, passed := all.Next(); len(lines) != 0 || passed != 0 {
		t.Errorf("again: %d %+v", passed, lines)
	}
	for range 10 { // a second
		now = now.Add(window)
		for i := range 9 {
			tail.Delivered(batch(fmt.Sprint("t", i), "k", 10, now))
		}
	}
	if lines, passed := all.Next(); len(lines) != 50 || passed != 900 {
		t.Errorf("in a second: %d of %d", len(lines), passed)
	}
	all.Close()
	all.Close()
	if tail.looking.Load() != 1 {
		t.Error("closing one twice closed another")
	}
	bills.Close()
	if tail.flows != nil || tail.lines != nil {
		t.Error("it remembers rows although nobody looks")
	}
	tail.Delivered(batch("orders", "k", 1, now))
}

func TestTail_IsBounded(t *testing.T) {
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	tail := &Tail{now: func() time.Time { return now }}
	look := tail.Open("", "")
	defer look.Close()
	for i := range 3 * maxFlows {
		now = now.Add(window)
		tail.Delivered(batch(fmt.Sprint("topic-", i), strings.Repeat("k", 1000), 2, now))
	}
	if len(tail.flows) != maxFlows || len(tail.lines) != maxLines {
		t.Errorf("%d flows, %d lines", len(tail.flows), len(tail.lines))
	}
	if _, passed := look.Next(); passed != 6*maxFlows {
		t.Errorf("%d rows passed", passed)
	}
}

func BenchmarkTail(b *testing.B) {
	records := batch("orders", "key", 500, time.Now())
	b.Run("nobody looks", func(b *testing.B) {
		tail := new(Tail)
		for b.Loop() {
			tail.Delivered(records)
		}
	})
	b.Run("one looks", func(b *testing.B) {
		tail := new(Tail)
		defer tail.Open("", "").Close()
		for b.Loop() {
			tail.Delivered(records)
		}
	})
}
