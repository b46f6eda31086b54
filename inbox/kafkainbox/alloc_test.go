package kafkainbox

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// claimsAll is a transaction whose table has none of the keys.
type claimsAll struct{ keys []string }

func (c claimsAll) Query(_ context.Context, _ string, _ []any, row func(func(...any) error) error) error {
	for i := range c.keys {
		if err := row(func(into ...any) error { *into[0].(*string) = c.keys[i]; return nil }); err != nil {
			return err
		}
	}
	return nil
}

// ownRound is what a round does besides asking servers and calling the handler.
func ownRound(tb testing.TB, events int) func() {
	tb.Helper()
	cfg := Config{}
	t, ok := tb.(*testing.T)
	if !ok {
		t = &testing.T{}
	}
	p := testPartition(t, cfg)
	var records []*kgo.Record
	tx := claimsAll{}
	now := time.Now()
	for i := range events {
		id := fmt.Sprintf("7f0c1c5e-0000-4000-8000-%012d", i)
		records = append(records, &kgo.Record{Topic: "order-events", Key: fmt.Append(nil, i%50), Value: make([]byte, 200), Timestamp: now.Add(-time.Hour),
			Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}, {Key: "eventType", Value: []byte("OrderPlaced")}}})
		tx.keys = append(tx.keys, inbox.ByID("order-events", id).String())
	}
	offset := int64(0)
	return func() {
		for _, r := range records {
			r.Offset = offset
			offset++
		}
		p.add([16]byte{}, &kgo.FetchPartition{Records: records})
		items := p.queues[0].pull(events, 1<<30)
		at := p.advance(items)
		keys := make([]inbox.Key, len(items))
		for i := range items {
			p.admit(&items[i], at)
			keys[i] = items[i].key
		}
		fresh, err := p.c.box.Claim(context.Background(), tx, keys)
		if err != nil || len(fresh) != events || !fresh[events-1] {
			tb.Fatal(len(fresh), err)
		}
		p.finish(items)
	}
}

func TestAllocations_AreFewForAnEvent(t *testing.T) {
	const events = 500
	round := ownRound(t, events)
	if n := testing.AllocsPerRun(20, round) / events; n > allocations {
		t.Errorf("%.1f allocations an event, want %d at most", n, allocations)
	}
}

func BenchmarkOwnCode(b *testing.B) {
	const events = 500
	round := ownRound(b, events)
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
}
