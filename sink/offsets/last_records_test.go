package offsets_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sink/offsets"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// A record is gone only if its topic was recreated, and not if it was deleted with all before it.
func TestLastRecords_AreGoneWithTheirTopicAndNotWithItsRecords(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "letters"), kfake.MaxVersions(kversion.V2_7_0()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	var last offsets.LastRecords
	gone := func(want bool, when string) {
		t.Helper()
		if got, err := last.Gone(t.Context(), client, "letters"); err != nil || got != want {
			t.Errorf("%s: gone is %t, want %t, error %v", when, got, want, err)
		}
	}
	write := func(values ...string) (last *kgo.Record) {
		t.Helper()
		for _, value := range values {
			var err error
			if last, err = client.ProduceSync(t.Context(), &kgo.Record{Topic: "letters", Partition: 1, Value: []byte(value)}).First(); err != nil {
				t.Fatal(err)
			}
		}
		return last
	}
	gone(false, "before anything was read")
	last.Set(write("a", "b"))
	gone(false, "nothing happened")
	write("c")
	gone(false, "more came")
	var before kadm.Offsets
	before.Add(kadm.Offset{Topic: "letters", Partition: 1, At: 3, LeaderEpoch: -1})
	if _, err := kadm.NewClient(client).DeleteRecords(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	gone(false, "it was deleted with all before it")
	if err := c.DeleteTopic("letters"); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Gone(t.Context(), client, "letters"); err == nil {
		t.Error("of a topic that is missing nobody knows what will be there")
	}
	if err := c.CreateTopic("letters", 2, nil); err != nil {
		t.Fatal(err)
	}
	gone(true, "the topic is another, and empty")
	last.Clear()
	gone(false, "after Clear")
}
