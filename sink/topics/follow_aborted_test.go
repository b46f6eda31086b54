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

// The last record before another's open transaction was aborted: nobody who reads what is
// committed ever sees it.
func TestReadTopic_EndsBehindARecordThatWasAborted(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "letters"))
	aborting, open := client(t, c, kgo.TransactionalID("aborting")), client(t, c, kgo.TransactionalID("open"))
	put := func(by *kgo.Client, value string) {
		t.Helper()
		if err := by.ProduceSync(t.Context(), &kgo.Record{Topic: "letters", Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	put(client(t, c), "early")
	for _, by := range []*kgo.Client{aborting, open} {
		if err := by.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
	}
	put(aborting, "aborted")
	put(open, "open")
	if err := aborting.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	read := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var seen []string
		err := topics.ReadTopic(ctx, broker.Connection{Brokers: c.ListenAddrs()}, "letters", func(m *topics.Message) error {
			seen = append(seen, string(m.Value))
			return nil
		})
		if err != nil || !slices.Equal(seen, []string{"early"}) {
			t.Errorf("%s: read %q, %v", when, seen, err)
		}
	}
	read("while the transaction is open")
	put(open, "more")
	if err := open.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	read("after it")
}
