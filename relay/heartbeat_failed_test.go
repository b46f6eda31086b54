package relay

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// To get past a heartbeat that failed, everything on its way is waited for. Later rows
// are sent without waiting for one another, as ever.
func TestRelay_AHeartbeatThatFailedHoldsNothingUpLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBeating(t, newServer())
		began := time.Now()
		b.sink.Decide(func(*record.Record) sinktest.Verdict {
			if time.Since(began) < 1500*time.Millisecond {
				return sinktest.Fail(sink.Rejected, "topic_missing", errors.New("topic hb.app does not exist"))
			}
			return sinktest.Verdict{}
		})
		pass(1500 * time.Millisecond)
		if c := b.sink.Counts(); c.Halts != 1 {
			t.Fatalf("no heartbeat failed: %+v", c)
		}
		b.sink.Hold()
		b.server.more <- fixed(110, 120, 1, "order/a/1")
		b.server.more <- fixed(130, 140, 1, "order/a/2")
		synctest.Wait()
		b.sink.Ack(1)
		synctest.Wait()
		b.server.more <- fixed(150, 160, 1, "order/a/3")
		synctest.Wait()
		if c := b.sink.Counts(); c.Delivered != 1 || c.Waiting != 2 {
			t.Errorf("with an answer to the first of three rows: %+v", c)
		}
		b.sink.Release()
		b.stop(t)
		if got := b.values(); got != "1 2 3" {
			t.Errorf("delivered %q", got)
		}
	})
}
