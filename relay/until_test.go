package relay

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// endsThere is a stream that ends at its Until, and whose first connection is lost at the end.
type endsThere struct {
	*fakeSource
	closes *atomic.Int64
}

func (s endsThere) Run(_ context.Context, out chan<- *wal.Batch, _ func() wal.LSN) error {
	if b := batch(110, 120, 1, "order/a/1"); s.StartLSN() < 120 {
		out <- b
	}
	return nil
}

func (s endsThere) Close(ctx context.Context, confirmed wal.LSN) error {
	if s.closes.Add(1) == 1 {
		return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "confirm final position", Err: errors.New("connection reset")}
	}
	return s.fakeSource.Close(ctx, confirmed)
}

// The server did not take the last position: that passes with another session, and no person has to
// decide anything.
func TestUntil_TriesAgainWhereTheLastPositionWasNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, closes := newServer(), new(atomic.Int64)
		server.wrap = func(f *fakeSource) Source { return endsThere{f, closes} }
		b := start(t, Config{Stream: replication.Options{Until: 120}, OnBlocked: ExitWhenBlocked, RetryMin: 10 * time.Millisecond}, server)
		if err := <-b.result; err != nil || server.position() != 120 || closes.Load() != 2 {
			t.Errorf("it ended with %v after %d sessions, confirmed to %s", err, closes.Load(), server.position())
		}
	})
}
