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

// Whoever has repaired something does not wait for the end of the pause.
func TestTryNow_CutsThePauseBetweenSessionsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions := 0
		routes := outboxRoutes(t)
		r := New(Config{RetryMin: time.Hour, RetryMax: time.Hour}, Parts{Source: func(context.Context) (Source, error) {
			sessions++
			return nil, &fault.Error{Kind: fault.KindRetry, Op: "connect", Err: errors.New("refused")}
		}, Router: routes, Sink: func() (sink.Sink, error) { return new(sinktest.Recorder), nil }}, Events{}, zerolog.Nop())
		if r.TryNow() {
			t.Error("before it runs there is no pause")
		}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- r.Run(ctx) }()
		synctest.Wait()
		before := sessions
		if !r.TryNow() {
			t.Error("no pause was cut short")
		}
		synctest.Wait()
		if sessions != before+1 {
			t.Errorf("%d sessions after it, %d before", sessions, before)
		}
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
		if r.TryNow() {
			t.Error("after the end there is no pause")
		}
	})
}

func TestTryNow_CutsThePauseAtABlockedRowShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		to := new(sinktest.Recorder)
		to.Decide(func(*record.Record) sinktest.Verdict {
			tries.Add(1)
			return sinktest.Fail(sink.Rejected, "record_too_large", errors.New("too large"))
		})
		w := watchRelay(t, Config{RetryMin: time.Hour}, newServer(fixed(110, 120, 1, "order/a/1")), to, nil)
		pass(time.Second)
		before := tries.Load()
		if !w.relay.TryNow() {
			t.Error("no pause was cut short")
		}
		synctest.Wait()
		if now := tries.Load(); now <= before {
			t.Errorf("%d tries, and %d before", now, before)
		}
		w.stop(t)
	})
}
