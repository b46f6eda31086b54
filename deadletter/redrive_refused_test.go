package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// slowRefusal is a sink that refuses records of a topic after a while, as Kafka's does where no
// broker knows the topic.
type slowRefusal struct {
	sinktest.Recorder
	after  time.Duration
	topic  string
	reason string
	tried  int
}

func (s *slowRefusal) Send(ctx context.Context, records []record.Record, done func(error)) {
	if records[0].Topic != s.topic {
		s.Recorder.Send(ctx, records, done)
		return
	}
	s.tried++
	<-time.After(s.after)
	done(&sink.FailedError{Failures: []sink.Failure{{Class: sink.Blocked, Reason: s.reason, Err: errors.New("create the topic")}}})
}

// perKey re-drives one letter of each key, and returns what became of each.
func perKey(t *testing.T, out sink.Sink, waiting func(Wait), keys ...string) (results []string) {
	t.Helper()
	log := newLog(Filter{})
	for i, key := range keys {
		log.letter(wal.LSN(0x10*(i+1)), key)
	}
	r := &Redriver{Sink: out, Topic: topic, Waiting: waiting, ReadLetters: func(_ context.Context, entries []*Entry) (map[Location]*Letter, error) {
		return whole(Task{Entries: entries}, func(l *Letter) { l.Record.Value = []byte("v") }), nil
	}}
	err := r.Run(t.Context(), log.backlog.Whole(), func(o Outcome) { results = append(results, fmt.Sprintf("%d done: %v", o.Done, o.Err)) })
	if err != nil {
		t.Error(err)
	}
	return results
}

// A client asks for seconds for a topic that is gone. A redrive waits for that once, and not again
// for each key.
func TestRedriver_AsksOnceForATopicThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slowRefusal{after: 4 * time.Second, topic: "orders", reason: fault.ReasonUnknownTopic}
		began := time.Now()
		results := perKey(t, out, nil, "a", "b", "c")
		if out.tried != 1 || time.Since(began) != 4*time.Second {
			t.Errorf("asked %d times, in %s", out.tried, time.Since(began))
		}
		if !strings.Contains(results[0], "create the topic") {
			t.Errorf("the first key: %s", results[0])
		}
		for _, later := range results[1:] {
			if later != `0 done: not tried, because the brokers refused an earlier record for topic "orders"; correct what they refused, and run the redrive again` {
				t.Errorf("a later key: %s", later)
			}
		}
	})
}

// An answer that nobody knows may be about the record alone, so the next key is tried.
func TestRedriver_TriesEachKeyWhereTheAnswerIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slowRefusal{topic: "orders", reason: fault.ReasonKafkaError}
		if perKey(t, out, nil, "a", "b", "c"); out.tried != 3 {
			t.Errorf("%d of 3 keys were tried", out.tried)
		}
	})
}

// Without the dead-letter topic no letter can be marked: nothing more is sent.
func TestRedriver_SendsNothingThatItCannotMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slowRefusal{topic: topic, reason: fault.ReasonUnknownTopic}
		results := perKey(t, out, nil, "a", "b", "c")
		if n := len(out.Delivered()); n != 1 || out.tried != 1 || len(results) != 3 {
			t.Errorf("%d records were sent, %d markers tried: %q", n, out.tried, results)
		}
	})
}

func TestRedriver_TellsWhatItWaitsFor(t *testing.T) {
	away := errors.New("dial: refused")
	for _, tt := range []struct {
		unreachable error
		after       time.Duration
		want        string
	}{
		{nil, time.Second + time.Second/2, "[]"},
		{nil, 4 * time.Second, "[{orders 1 2s <nil>}]"},
		{away, 40 * time.Second, "[{orders 1 2s dial: refused} {orders 1 17s dial: refused} {orders 1 32s dial: refused}]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			out := &slowRefusal{after: tt.after, topic: "orders", reason: fault.ReasonUnknownTopic}
			out.SetReachable(tt.unreachable)
			told := []Wait{}
			perKey(t, out, func(w Wait) { told = append(told, w) }, "a")
			if got := fmt.Sprint(told); got != tt.want {
				t.Errorf("after %s it told %s, want %s", tt.after, got, tt.want)
			}
		})
	}
}
