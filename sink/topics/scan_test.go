package topics_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// On real brokers: what is committed up to where the topic ended is visited, what is aborted is
// not, and an open transaction is waited for. What was removed shows in the beginning.
func TestScan_ReadsWhatIsCommitted(t *testing.T) {
	brokers := harness.Kafka(t)
	name := harness.Unique(t, "scan")
	admin := brokers.Admin(t)
	compact := "compact"
	if _, err := admin.CreateTopic(t.Context(), 2, 1, map[string]*string{"cleanup.policy": &compact}, name+"-compacted"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateTopic(t.Context(), 2, 1, nil, name); err != nil {
		t.Fatal(err)
	}
	producer := func(opts ...kgo.Opt) *kgo.Client {
		c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers.Addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	put := func(by *kgo.Client, partition int32, values ...string) {
		t.Helper()
		for _, v := range values {
			if err := by.ProduceSync(t.Context(), &kgo.Record{Topic: name, Partition: partition, Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	plain, first, second := producer(), producer(kgo.TransactionalID(name+"-1")), producer(kgo.TransactionalID(name+"-2"))
	put(plain, 0, "gone", "a")
	put(plain, 1, "b")
	for _, by := range []*kgo.Client{first, second} {
		if err := by.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
	}
	put(first, 0, "aborted")
	put(second, 1, "open")
	put(plain, 1, "c")
	if err := first.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	var gone kadm.Offsets
	gone.AddOffset(name, 0, 1, -1)
	if _, err := admin.DeleteRecords(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	s, err := topics.NewScanner(broker.Connection{Brokers: brokers.Addrs})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	spans, err := s.Spans(t.Context(), time.Time{}, name, name+"-nowhere")
	if err != nil || len(spans) != 2 || spans[0].Begin != 1 || spans[0].From != 1 || spans[1].Begin != 0 || spans[1].End != 3 {
		t.Fatalf("%+v, %v", spans, err)
	}
	var seen []string
	visit := func(m *topics.Message) error { seen = append(seen, string(m.Value)); return nil }
	hidesWithin(t, fault.ReasonRecordsHidden, "partition 1", func(_ context.Context, patience time.Duration) error {
		return s.Scan(t.Context(), spans, patience, visit)
	})
	if err := second.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	seen = nil
	if err := s.Scan(t.Context(), spans, time.Minute, visit); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(seen); !slices.Equal(seen, []string{"a", "b", "c", "open"}) {
		t.Errorf("it visits %q", seen)
	}
	if later, err := s.Spans(t.Context(), time.Now().Add(time.Hour), name); err != nil || later[0].From != later[0].End {
		t.Errorf("%+v, %v", later, err)
	}
	compacted, unseen, err := s.Compacted(t.Context(), name, name+"-compacted", name+"-nowhere")
	if err != nil || len(unseen) != 0 || len(compacted) != 1 || !compacted[name+"-compacted"] {
		t.Errorf("%v, %v, %v", compacted, unseen, err)
	}
}
