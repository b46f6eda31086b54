package relay

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// keeping is a sink whose dead-letter topic is compacted for a while.
type keeping struct {
	*sinktest.Recorder
	compacted atomic.Bool
}

func (k *keeping) LettersKept(context.Context) error {
	if !k.compacted.Load() {
		return nil
	}
	return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonDeadLetterTopic, Err: errors.New("dead-letter topic is compacted")}
}

func (k *keeping) Ready(ctx context.Context) error { return k.LettersKept(ctx) }

// A start is refused where the topic is compacted, and a relay that runs does the same.
func TestRelay_StreamsOnlyWhileItsDeadLetterTopicKeepsEveryLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k *keeping
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.wrap = func(r *sinktest.Recorder) sink.Sink {
			k = &keeping{Recorder: r}
			return k
		}
		b.start(t, Config{OnReject: DeadLetterOnReject})
		pass(time.Minute)
		if st := b.relay.Status(); st.State != status.Streaming || b.server.position() != 120 || b.server.opens.Load() != 1 {
			t.Fatalf("%s, confirmed %s after %d sessions", st.State, b.server.position(), b.server.opens.Load())
		}
		k.compacted.Store(true)
		pass(2 * pingInterval)
		b.server.mu.Lock()
		b.server.batches = append(b.server.batches, fixed(130, 140, 1, "order/a/2"))
		b.server.mu.Unlock()
		pass(10 * time.Minute)
		if st := b.relay.Status(); st.State != status.Blocked || st.Reason != fault.ReasonDeadLetterTopic || st.Message != "dead-letter topic is compacted" {
			t.Errorf("while it is compacted: %s %s %q", st.State, st.Reason, st.Message)
		}
		if n := len(b.sink.Delivered()); n != 1 || b.server.opens.Load() != 1 {
			t.Errorf("while it is compacted: %d records delivered, %d sessions", n, b.server.opens.Load())
		}
		k.compacted.Store(false)
		pass(time.Minute)
		if st := b.relay.Status(); st.State != status.Streaming || b.server.position() != 140 || b.values() != "1 2" {
			t.Errorf("once it is right: %s %s, confirmed %s, delivered %s", st.State, st.Message, b.server.position(), b.values())
		}
		b.cancel()
		if err := <-b.result; err != nil {
			t.Error(err)
		}
	})
}
