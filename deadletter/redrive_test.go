package deadletter

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// What fails is found among its neighbours, everything before it is done with, and
// what may heal is tried again.
func TestRedriver_SendsInOrderUpToWhatFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		class  sink.Class
		heals  int // after so many tries of the bad record; 0: never
		sent   string
		done   int
		failed bool
	}{
		{"refused", sink.Rejected, 0, "1 2", 2, true},
		{"refused twice, then a neighbour's fault", sink.Retry, 2, "1 2 bad 4 5", 5, false},
		{"never", sink.Retry, 0, "1 2", 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out sinktest.Recorder
				tried := 0
				out.Decide(func(r *router.Record) sinktest.Verdict {
					if string(r.Value) != "bad" {
						return sinktest.Verdict{}
					}
					if tried++; tt.heals > 0 && tried > tt.heals {
						return sinktest.Verdict{}
					}
					return sinktest.Fail(tt.class, "reason", errors.New("no"))
				})
				var records []router.Record
				for _, value := range []string{"1", "2", "bad", "4", "5"} {
					records = append(records, router.Record{Topic: "orders", Value: []byte(value)})
				}
				r := &Redriver{Sink: &out}
				n, err := r.send(t.Context(), records)
				if n != tt.done || (err != nil) != tt.failed {
					t.Fatalf("%d done, %v", n, err)
				}
				var sent []string
				for _, d := range out.Delivered() {
					sent = append(sent, string(d.Value))
				}
				if got := strings.Join(sent, " "); got != tt.sent {
					t.Fatalf("sent %q, want %q", got, tt.sent)
				}
			})
		})
	}
}

func TestRedriver_MarksWhatItDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(Filter{})
		l.letter(0x10, "a")
		l.letter(0x20, "a")
		l.letter(0x20, "a") // there twice
		l.letter(0x30, "a")
		group := l.backlog.Waiting()[0]
		letters := map[Place]*Letter{}
		for _, e := range group {
			whole := e.Letter
			whole.Record.Value = []byte("v" + e.Commit.String())
			if e.Commit == 0x30 {
				whole.Missing = []string{router.PartValue}
			}
			letters[e.Place()] = &whole
		}
		var out sinktest.Recorder
		r := &Redriver{Sink: &out, Topic: topic, Restore: func(context.Context, *Letter) (*router.Record, error) {
			return nil, errors.New("the row is gone")
		}}
		outcome := r.group(t.Context(), group, letters)
		if outcome.Done != 3 || outcome.Err == nil || !strings.Contains(outcome.Err.Error(), "gone") {
			t.Fatalf("outcome %+v", outcome)
		}
		all := out.Delivered()
		if len(all) != 3 || all[0].Topic != "orders" || string(all[1].Value) != "v0/20" || all[2].Topic != topic || all[2].Partition != 0 {
			t.Fatalf("delivered %+v", all)
		}
		_, m, err := Parse(&sink.Message{Topic: topic, Key: all[2].Key, Headers: all[2].Headers})
		if err != nil || m.Through != (Row{0x20, 1}) || m.Outcome != Sent {
			t.Fatalf("marker %+v, %v", m, err)
		}
	})
}
