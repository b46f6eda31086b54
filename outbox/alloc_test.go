package outbox

import (
	"context"
	"fmt"
	"testing"
)

// discard is a server that takes everything at once.
type discard struct{}

func (discard) Run(_ context.Context, statements []Statement, row func(func(...any) error) error) error {
	if a, ok := statements[0].Args[0].(*Array); ok {
		for i := range a.Len() {
			if err := row(func(into ...any) error { *into[0].(**string) = &a.At(i).String; return nil }); err != nil {
				return err
			}
		}
		return nil
	}
	return row(func(into ...any) error { *into[0].(**string) = statements[0].Args[0].(*string); return nil })
}

func hundred() []Event {
	var events []Event
	for i := range 100 {
		events = append(events, Event{
			AggregateType: "order", AggregateID: fmt.Sprint("o-", i), Type: "OrderPlaced", IdempotencyKey: fmt.Sprint("k-", i),
			Payload: []byte(`{"order_id": "7f0c1c5e-0000-4000-8000-000000000001", "lines": [{"sku": "A-1", "n": 2}], "total": 28.75}`),
		})
	}
	return events
}

func TestWrite_AllocatesLittleForAnEvent(t *testing.T) {
	w, events := writer(t, Config{}), hundred()
	got := testing.AllocsPerRun(20, func() {
		if _, err := w.Write(context.Background(), discard{}, events...); err != nil {
			t.Fatal(err)
		}
	})
	if an := got / float64(len(events)); an > allocations {
		t.Errorf("%.1f allocations an event, want %d at most", an, allocations)
	}
}

func BenchmarkWrite(b *testing.B) {
	w, events := writer(b, Config{}), hundred()
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint("events=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Write(context.Background(), discard{}, events[:n]...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
		})
	}
}
