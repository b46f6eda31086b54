package relay

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// repairing is a sink that needs a while to be ready again, as one does whose topic has to be
// created.
type repairing struct {
	*sinktest.Recorder
	takes time.Duration
	wakes bool // also if nobody waits for it any more
}

func (s repairing) Resume(ctx context.Context) {
	done := ctx.Done()
	if s.wakes {
		done = nil
	}
	select {
	case <-time.After(s.takes):
		s.Recorder.Resume(ctx)
	case <-done:
	}
}

// The slot is another relay's by the time that the sink is ready again: a record that failed
// before is not sent then, or it lands after newer ones.
func TestRelay_SendsNothingWhenTheSlotIsLostWhileTheSinkIsRepaired(t *testing.T) {
	for name, wakes := range map[string]bool{"the repair is waited for": true, "the wait ends": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(fixed(110, 120, 1, "order/a/1"))
				began := time.Now()
				var tries, last atomic.Int64 // when the last one was, since began
				recorder := new(sinktest.Recorder)
				recorder.Decide(func(*record.Record) sinktest.Verdict {
					last.Store(int64(time.Since(began)))
					if tries.Add(1) == 1 {
						return sinktest.Fail(sink.Blocked, fault.ReasonUnknownTopic, errors.New("unknown topic"))
					}
					return sinktest.Verdict{}
				})
				open := func(ctx context.Context) (Source, error) {
					if server.opens.Load() > 0 {
						return nil, &fault.Error{Kind: fault.KindBusy, Op: "start", Err: errors.New("slot is in use")}
					}
					return server.open(ctx)
				}
				routes := outboxRoutes(t)
				r := New(Config{}, Parts{Source: open, Router: routes, Sink: func() (sink.Sink, error) {
					return repairing{recorder, 3 * time.Second, wakes}, nil
				}}, Events{}, zerolog.Nop())
				ctx, cancel := context.WithCancel(t.Context())
				result := make(chan error, 1)
				go func() { result <- r.Run(ctx) }()
				pass(2 * time.Second)
				lost := time.Since(began)
				server.cut()
				pass(10 * time.Second)
				cancel()
				<-result
				if tries.Load() == 0 {
					t.Error("nothing was sent before the loss")
				}
				if late := time.Duration(last.Load()) - lost; late > 0 {
					t.Errorf("a record was sent %s after the slot was lost", late)
				}
			})
		})
	}
}

// A second signal, or the end of relay.drain_timeout, does not wait for the repair.
func TestRelay_AbortDoesNotWaitForARepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Decide(func(*record.Record) sinktest.Verdict {
			return sinktest.Fail(sink.Blocked, fault.ReasonUnknownTopic, errors.New("unknown topic"))
		})
		b.wrap = func(r *sinktest.Recorder) sink.Sink { return repairing{r, time.Minute, false} }
		b.start(t, Config{})
		pass(2 * time.Second)
		b.relay.Abort()
		aborted := time.Now()
		<-b.result
		if took := time.Since(aborted); took > time.Second {
			t.Errorf("the stop took %s", took)
		}
	})
}
