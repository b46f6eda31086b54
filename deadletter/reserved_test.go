package deadletter

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// Whoever may write letters, such as a consumer, may not have the relay write positions by them.
func TestRedriver_SendsNothingToAReservedTopic(t *testing.T) {
	l := newLog(Filter{})
	for _, commit := range []wal.LSN{0x10, 0x20} {
		l.letter(commit, "a")
	}
	task := l.backlog.Whole()[0]
	var out sinktest.Recorder
	r := &Redriver{Sink: &out, Topic: topic, Reserved: record.Reserved{{Name: "positions", For: "the positions of relays"}}}
	outcome := r.perform(t.Context(), chunk{&task, task.Entries}, whole(task, func(l *Letter) {
		if l.Commit == 0x20 {
			l.Record.Topic = "positions"
			for _, e := range task.Entries {
				if e.ID == l.ID {
					e.sum = digestOf(&l.Record)
				}
			}
		}
	}))
	if outcome.Done != 1 || outcome.Err == nil || !strings.Contains(outcome.Err.Error(), "its topic is positions, which is reserved for the positions of relays") {
		t.Fatalf("outcome %+v", outcome)
	}
	for _, d := range out.Delivered() {
		if d.Topic == "positions" {
			t.Errorf("sent %q to it", d.Value)
		}
	}
}
