package topics_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The last record that is committed so far may be one that nobody sees: another producer's
// transaction hides the end of the aborted one that it belongs to. The reading ends with the
// first record after it.
func TestReadTopic_EndsWhereTheLastRecordWasAborted(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "letters"))
	first, second := client(t, c, kgo.TransactionalID("first")), client(t, c, kgo.TransactionalID("second"))
	produce := func(by *kgo.Client, value string) {
		t.Helper()
		if err := by.ProduceSync(t.Context(), &kgo.Record{Topic: "letters", Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for _, by := range []*kgo.Client{first, second} {
		if err := by.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
	}
	produce(client(t, c), "early")
	produce(first, "aborted")
	produce(second, "open")
	if err := first.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var seen []string
	ended := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		ended <- topics.ReadTopic(ctx, broker.Connection{Brokers: c.ListenAddrs()}, "letters", func(m *topics.Message) error {
			if seen = append(seen, string(m.Value)); len(seen) == 1 {
				close(begun)
			}
			return nil
		})
	}()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatalf("ended with %v before it read anything", err)
	}
	if err := second.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if want := []string{"early"}; !slices.Equal(seen, want) {
		t.Errorf("visited %q, want %q", seen, want)
	}
}
