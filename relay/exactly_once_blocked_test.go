package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/rs/zerolog"
)

// searching is a sink that takes its time to find the record which the brokers refuse.
type searching struct {
	*transactional
}

func (j searching) FindRejected(ctx context.Context, id string, records []record.Record) (map[int]sink.Failure, error) {
	select {
	case <-time.After(50 * time.Millisecond):
		return j.transactional.FindRejected(ctx, id, records)
	case <-ctx.Done():
		return nil, &sink.Error{Class: sink.Retry, Reason: "closed", Err: ctx.Err()}
	}
}

// A blocked relay tries again now and then. A stop that comes in the middle of a try finds
// nothing in flight but what the brokers refuse, as one between two tries does.
func TestExactly_StopsCleanlyInTheMiddleOfATryWhileBlocked(t *testing.T) {
	step := 7 * time.Millisecond
	if testing.Short() {
		step *= 7
	}
	for name, rows := range map[string][]func() *wal.Batch{
		"the row is alone":                    {fixed(110, 120, 1, "order/a/bad")},
		"others are before it and behind it":  {fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/b/2", "order/a/bad", "order/c/3"), fixed(150, 160, 1, "order/a/4")},
		"its transaction has not ended there": {fixed(110, 120, 1, "order/a/1"), fixed(130, 0, 1, "order/a/bad", "order/c/3"), fixed(130, 140, 3, "order/a/4")},
		"the router refuses it":               {fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/b/2", "/a/5", "order/c/3")},
	} {
		t.Run(name, func(t *testing.T) {
			for after := time.Duration(0); after < 300*time.Millisecond; after += step {
				synctest.Test(t, func(t *testing.T) {
					server := newServer(rows...)
					server.origin = wal.Origin{SystemID: "7000", Timeline: 1}
					server.skipConfirmed = true
					l := &ledger{sim: calmSim(), refuses: func(r *record.Record) bool { return string(r.Value) == "bad" }}
					routes := outboxRoutes(t)
					cfg := Config{Guarantee: ExactlyOnce, RetryMin: 100 * time.Millisecond, RetryMax: 100 * time.Millisecond}
					cfg.Replication.Slot, cfg.Replication.Publication = "orders", "orders"
					relay := New(cfg, Parts{Source: server.open, Router: routes, Sink: func() (sink.Sink, error) { return searching{&transactional{l: l}}, nil }}, Events{}, zerolog.Nop())
					ctx, cancel := context.WithCancel(t.Context())
					result := make(chan error, 1)
					go func() { result <- relay.Run(ctx) }()
					pass(5*time.Second + after)
					if st := relay.Status(); st.State != status.Blocked {
						t.Fatalf("%s (%s)", st.State, st.Reason)
					}
					cancel()
					if err := <-result; err != nil {
						t.Errorf("stopped %s into the sixth second: %v (drain cut: %t)", after, err, errors.Is(err, ErrDrainCut))
					}
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}
