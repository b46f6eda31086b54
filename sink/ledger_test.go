package sink_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func openLedger(t *testing.T, c *kfake.Cluster) *sink.Ledger {
	t.Helper()
	cfg := sink.KafkaConfig{Brokers: c.ListenAddrs()}
	if _, err := sink.EnsureCheckpointTopic(t.Context(), cfg, "positions", false); err != nil {
		t.Fatal(err)
	}
	l, err := sink.NewLedger(cfg, "positions")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func TestLedger_KeepsTheNewestOfEachKey(t *testing.T) {
	l := openLedger(t, cluster(t))
	for range 2 { // the first time there is nothing
		found, err := l.Read(t.Context(), " for s")
		if err != nil || len(found) != 0 {
			t.Fatalf("%d values in an empty topic: %v", len(found), err)
		}
	}
	for _, w := range []struct{ key, value string }{{"a for s", "1"}, {"b for s", "2"}, {"a for s", "3"}, {"a for t", "4"}, {"b for s", ""}, {"c for s", "5"}} {
		var value []byte
		if w.value != "" {
			value = []byte(w.value)
		}
		if err := l.Write(t.Context(), w.key, value); err != nil {
			t.Fatal(err)
		}
	}
	found, err := l.Read(t.Context(), " for s")
	if err != nil {
		t.Fatal(err)
	}
	if keys := slices.Sorted(maps.Keys(found)); !slices.Equal(keys, []string{"a for s", "c for s"}) || string(found["a for s"]) != "3" {
		t.Fatalf("found %q", found)
	}
}

func TestLedger_SaysWhatIsMissing(t *testing.T) {
	c := cluster(t)
	l, err := sink.NewLedger(sink.KafkaConfig{Brokers: c.ListenAddrs()}, "positions")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = l.Read(t.Context(), "")
	e, _ := errors.AsType[*sink.Error](err)
	if e == nil || e.Class != sink.Blocked || e.Reason != sink.ReasonCheckpointTopic {
		t.Fatalf("without the topic: %v", err)
	}
}

// A broker that does not answer holds nobody longer than he waits.
func TestLedger_WriteEndsWithItsContext(t *testing.T) {
	c := cluster(t)
	l := openLedger(t, c)
	release := make(chan struct{})
	defer close(release)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		c.SleepControl(func() { <-release })
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := l.Write(ctx, "a for s", []byte("1"))
	if e, _ := errors.AsType[*sink.Error](err); e == nil || e.Class != sink.Retry {
		t.Fatalf("from a broker that does not answer: %v", err)
	}
}
