package status

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/rs/zerolog"
)

func rowsOf(tables ...*wal.Relation) *wal.Batch {
	b := new(wal.Batch)
	for _, of := range tables {
		b.Rows = append(b.Rows, wal.Row{Txn: new(wal.Txn), Relation: of})
	}
	return b
}

func TestFlows_CountByTableAndTopic(t *testing.T) {
	b := NewMonitor(Pipeline{}, zerolog.Nop(), nil)
	orders, again := &wal.Relation{Namespace: "public", Name: "orders"}, &wal.Relation{Namespace: "public", Name: "orders"}
	stock := &wal.Relation{Namespace: "shop", Name: "stock"}
	b.Read(rowsOf(orders, orders, stock, orders))
	b.Read(rowsOf())
	b.Read(rowsOf(again)) // of a later session
	b.SawTopics([]record.Record{{Topic: "a"}, {Topic: "b"}, {Topic: "b"}, {Topic: "a"}})
	for _, table := range []string{"shop.stock", "shop.stock", ""} { // a table that is not known is counted in the sum alone
		b.RejectedRow(table)
	}
	st := b.Status()
	if st.EventsRejected != 3 || st.Tables[0].Rejected != 0 || st.Tables[1].Rejected != 2 {
		t.Errorf("%d rejected in all, by table %+v", st.EventsRejected, st.Tables)
	}
	if st.RowsRead != 5 {
		t.Errorf("%d rows were read", st.RowsRead)
	}
	if got := fmt.Sprint(names(st.Tables), names(st.TopicRates), st.Topics); got != "[public.orders=4 shop.stock=1] [a=2 b=2] [a b]" {
		t.Error(got)
	}
	if st.Tables[0].Last.IsZero() || st.TopicRates[1].Last.IsZero() {
		t.Errorf("no time of the last one: %+v %+v", st.Tables, st.TopicRates)
	}
}

func names(all []Flow) (list []string) {
	for _, f := range all {
		list = append(list, fmt.Sprintf("%s=%d", f.Name, f.Total))
	}
	return list
}

func TestFlows_RateIsOfTheLastTenSeconds(t *testing.T) {
	f := newFlows(10)
	begin := time.Unix(1000, 0)
	for s := range 31 { // 5 a second for 20 s, then nothing
		if s > 0 && s <= 20 {
			f.of("x").add(5, begin)
		}
		at := begin.Add(time.Duration(s) * time.Second)
		f.tick(at)
		f.tick(at.Add(time.Second / 4)) // looks between two seconds change nothing
		if s == 2 {
			f.of("late").add(4, begin)
		}
		want := map[int]float64{1: 5, 4: 5, 20: 5, 25: 2.5, 30: 0}
		if rate, asked := want[s]; asked {
			if all := f.list(); all[len(all)-1].PerSecond != rate {
				t.Errorf("after %d s: %+v, want %v a second", s, all, rate)
			}
		}
		if all := f.list(); s == 4 && all[0].PerSecond != 1 {
			t.Errorf("one that came later: %+v, want 1 a second", all)
		}
	}
}

func TestFlows_AreBounded(t *testing.T) {
	f := newFlows(1000)
	now := time.Unix(1000, 0)
	f.tick(now)
	for i := range 1200 {
		f.of(fmt.Sprintf("topic-%04d", i)).add(1+i%7, now)
	}
	f.of("topic-0500").add(5000, now)
	f.tick(now.Add(time.Second))
	all := f.list()
	if len(f.byName) != 1000 || len(all) != maxFlows {
		t.Fatalf("%d are kept and %d are shown", len(f.byName), len(all))
	}
	shown := false
	for i, one := range all {
		shown = shown || one.Name == "topic-0500"
		if one.PerSecond < 7 || i > 0 && all[i-1].Name > one.Name {
			t.Errorf("%+v is shown, and quieter or out of order", one)
		}
	}
	if !shown {
		t.Error("the busiest is left out")
	}
}

func TestFlows_OfShardsAreAddedUp(t *testing.T) {
	now := time.Unix(1000, 0)
	all := joined([]Flow{{"b", 1, 0, 0.5, now}, {"a", 2, 5, 1, now}, {"b", 10, 3, 2, now.Add(time.Second)}})
	if len(all) != 2 || all[0] != (Flow{"a", 2, 5, 1, now}) || all[1] != (Flow{"b", 11, 3, 2.5, now.Add(time.Second)}) {
		t.Errorf("%+v", all)
	}
}

// What is counted of a batch must not cost a row anything.
func BenchmarkMonitor_Read(b *testing.B) {
	monitor := NewMonitor(Pipeline{}, zerolog.Nop(), nil)
	of := &wal.Relation{Namespace: "public", Name: "outbox"}
	batch := new(wal.Batch)
	for range 1000 {
		batch.Rows = append(batch.Rows, wal.Row{Txn: new(wal.Txn), Relation: of})
	}
	b.ReportAllocs()
	for b.Loop() {
		monitor.Read(batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/row")
}
