package topics_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A committed record lies behind the transaction of another pipeline that is not over. It is one of the whole topic.
func TestReadWhole_WaitsForWhatATransactionHides(t *testing.T) {
	for name, tt := range map[string]struct {
		end  kgo.TransactionEndTry
		want []string
	}{
		"committed": {kgo.TryCommit, []string{"early", "open", "behind"}},
		"aborted":   {kgo.TryAbort, []string{"early", "behind"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t, kfake.SeedTopics(1, "letters"))
			plain, open := client(t, c), client(t, c, kgo.TransactionalID("open"))
			if err := open.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for _, r := range []struct {
				by    *kgo.Client
				value string
			}{{plain, "early"}, {open, "open"}, {plain, "behind"}} {
				if err := r.by.ProduceSync(t.Context(), &kgo.Record{Topic: "letters", Value: []byte(r.value)}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			at := broker.Connection{Brokers: c.ListenAddrs()}
			var seen []string
			visit := func(m *topics.Message) error { seen = append(seen, string(m.Value)); return nil }

			asked := 0
			err := topics.ReadWhole(t.Context(), at, "letters", time.Second, func() { asked++ }, visit)
			if e, ok := errors.AsType[*sink.Error](err); !ok || e.Reason != fault.ReasonLettersHidden || e.Class != sink.Retry || asked == 0 {
				t.Errorf("while it is open: %v, asked %d times", err, asked)
			}
			if want := []string{"early"}; !slices.Equal(seen, want) {
				t.Errorf("while it is open: visited %q, want %q", seen, want)
			}

			seen, asked = nil, 0
			err = topics.ReadWhole(t.Context(), at, "letters", time.Minute, func() {
				if asked++; asked == 1 {
					if err := open.EndTransaction(t.Context(), tt.end); err != nil {
						t.Error(err)
					}
				}
			}, visit)
			if err != nil || !slices.Equal(seen, tt.want) || asked == 0 {
				t.Errorf("visited %q, want %q; asked %d times; %v", seen, tt.want, asked, err)
			}
		})
	}
}
