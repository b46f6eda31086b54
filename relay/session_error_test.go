package relay

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// A drain that ends with its connection said that rows were in flight, and nothing of
// the connection, let alone why it went.
func TestRelay_ADrainThatLostItsConnectionSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.server.lost = make(chan struct{})
		b.server.closeErr = &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "send status", Err: errors.New("broken pipe")}
		b.sink.Hold()
		b.start(t, Config{})
		pass(time.Second)
		b.cancel()
		pass(time.Second)
		close(b.server.lost)
		err := <-b.result
		if !errors.Is(err, ErrDrainCut) || !strings.Contains(err.Error(), "the connection to the server was lost") || !strings.HasSuffix(err.Error(), "send status: broken pipe") {
			t.Fatalf("run: %v", err)
		}
		if postgres.KindOf(err) != fault.KindRetry || postgres.Reason(err) != fault.ReasonNetwork {
			t.Errorf("%s %s", postgres.KindOf(err), postgres.Reason(err))
		}
	})
}

// Somebody drops the slot while the relay reconnects. It ends before the probe looks,
// and nobody else knows how far the slot had been confirmed.
func TestRelay_ASlotThatIsGoneIsNamedWithItsPosition(t *testing.T) {
	missing := &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonSlotMissing, Op: "look at", Err: errors.New("of somebody"), Hint: "for a new relay"}
	for name, c := range map[string]struct {
		shards int
		says   string
	}{
		"one slot":   {says: "it had confirmed LSN 0/78"},
		"of a shard": {shards: 2, says: "of somebody"}, // it may be another shard's
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
				b.server.openErr = func(n int64) error {
					if n > 1 {
						return missing
					}
					return nil
				}
				cfg := Config{OnBlocked: ExitWhenBlocked}
				cfg.Replication.Shard.Count = c.shards
				b.start(t, cfg)
				pass(time.Second)
				b.server.cut()
				err := <-b.result
				var blocked *BlockedError
				if !errors.As(err, &blocked) || blocked.Reason != fault.ReasonSlotMissing || !strings.Contains(err.Error(), c.says) {
					t.Errorf("run: %v", err)
				}
			})
		})
	}
}

// A slot that was never there is none that is gone.
func TestRelay_ASlotThatWasNeverThereIsToBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.server.openErr = func(int64) error {
			return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonSlotMissing, Op: "look at", Hint: "for a new relay"}
		}
		b.start(t, Config{})
		if err := <-b.result; err == nil || !strings.Contains(err.Error(), "for a new relay") {
			t.Errorf("run: %v", err)
		}
	})
}
