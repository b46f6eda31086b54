package sinktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

func TestRecorder_PassesTheSuite(t *testing.T) {
	sinktest.Exercise(t, func(*testing.T) sinktest.Subject {
		r := &sinktest.Recorder{}
		return sinktest.Subject{
			Sink:      r,
			Topic:     "orders",
			Delivered: func(*testing.T) []sinktest.Delivered { return r.Delivered() },
			Refuse: func(_ *testing.T, value string, class sink.Class) func() {
				r.Decide(func(record *record.Record) sinktest.Verdict {
					if string(record.Value) == value {
						return sinktest.Fail(class, "refused", errors.New("refused"))
					}
					return sinktest.Verdict{}
				})
				return func() { r.Decide(nil) }
			},
			Stall: func(*testing.T) func() {
				r.Room(8)
				r.Hold()
				return func() { r.Room(0); r.Release() }
			},
			Room: 8,
		}
	})
}

func TestDiscard_PassesTheSuite(t *testing.T) {
	sinktest.Exercise(t, func(*testing.T) sinktest.Subject {
		return sinktest.Subject{Sink: &sinktest.Discard{}, Topic: "orders"}
	})
}

func send(s sink.Sink, keys ...string) *[]sink.Failure {
	var records []record.Record
	for i, key := range keys {
		records = append(records, record.Record{Topic: "t", Key: []byte(key), Value: fmt.Append(nil, i), Partition: record.AutoPartition})
	}
	outcome := new([]sink.Failure)
	s.Send(context.Background(), records, func(err error) {
		*outcome = []sink.Failure{}
		var failed *sink.FailedError
		if errors.As(err, &failed) {
			*outcome = failed.Failures
		}
	})
	return outcome
}

func TestRecorder_AcknowledgesHeldRecordsOneByOne(t *testing.T) {
	r := &sinktest.Recorder{}
	r.Hold()
	first, second := send(r, "a", "b"), send(r, "c")
	r.Ack(1)
	if *first != nil || r.Counts().Delivered != 1 {
		t.Fatalf("after one acknowledgement: %+v", r.Counts())
	}
	r.Ack(1)
	if *first == nil || *second != nil {
		t.Fatal("the first Send is not done after its last acknowledgement, or the second one is")
	}
	r.Release()
	if *second == nil || r.Counts().Waiting != 0 {
		t.Fatalf("after Release: %+v", r.Counts())
	}
}

func TestRecorder_ScattersWhatLiesBehindAFailure(t *testing.T) {
	r := &sinktest.Recorder{}
	r.Scatter(true)
	r.Decide(func(record *record.Record) sinktest.Verdict {
		if string(record.Key) == "bad" {
			return sinktest.Fail(sink.Blocked, "unknown_topic", errors.New("no"))
		}
		return sinktest.Verdict{}
	})
	outcome := send(r, "a", "bad", "b", "bad", "c")
	var failed []int
	for _, f := range *outcome {
		failed = append(failed, f.Index)
	}
	if !slices.Equal(failed, []int{1, 3}) {
		t.Errorf("failed: %v, want 1 and 3", failed)
	}
	if got := r.Counts(); got.Delivered != 3 || got.Halts != 1 {
		t.Errorf("%+v", got)
	}
}

func TestRecorder_DelaysInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &sinktest.Recorder{}
		r.Delay(time.Hour)
		start := time.Now()
		done := make(chan error, 1)
		r.Send(context.Background(), []record.Record{{Topic: "t"}}, func(err error) { done <- err })
		if err := <-done; err != nil || time.Since(start) != time.Hour {
			t.Errorf("acknowledged after %s with %v", time.Since(start), err)
		}
	})
}

// A caller that follows the contract gets everything delivered, in order for
// each key, whatever the faults are.
func TestFaulty_LeavesNothingUndeliverable(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			f := sinktest.NewFaulty(seed, sinktest.Faults{Fail: 0.02, Blocked: 0.02, Lost: 0.02, MaxDelay: time.Second})
			var todo []record.Record
			for i := range 300 {
				todo = append(todo, record.Record{Topic: "t", Key: fmt.Append(nil, i%7), Value: fmt.Appendf(nil, "%04d", i)})
			}
			for try := 0; len(todo) > 0; try++ {
				if try > 1000 {
					t.Fatal("never delivered")
				}
				var outcomes []*sinktest.Outcome
				parts := slices.Collect(slices.Chunk(todo, 20))
				for _, part := range parts {
					outcomes = append(outcomes, sinktest.Deliver(context.Background(), f, part))
				}
				todo = nil
				for i, o := range outcomes {
					for _, failure := range sinktest.Failures(t, o.Wait(t)) {
						todo = append(todo, parts[i][failure.Index])
					}
				}
				f.Resume(t.Context())
			}
			last := map[string]string{}
			for _, d := range f.Delivered() {
				if key := string(d.Key); string(d.Value) < last[key] {
					t.Fatalf("seed %d: %s after %s", seed, d.Value, last[key])
				} else {
					last[key] = string(d.Value)
				}
			}
		})
	}
}
