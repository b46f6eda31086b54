package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// hiding is a dead-letter topic whose end lies after another pipeline's open transaction
// until it is freed.
type hiding struct {
	*reader
	freed chan struct{}

	mu    sync.Mutex
	asked []bool // with all
}

func (h *hiding) CatchUp(ctx context.Context, all bool) error {
	h.mu.Lock()
	h.asked = append(h.asked, all)
	h.mu.Unlock()
	if all {
		select {
		case <-h.freed:
		case <-ctx.Done():
			return &sink.Error{Class: sink.Retry, Reason: fault.ReasonLettersHidden, Err: errors.New("hidden")}
		}
	}
	return h.reader.CatchUp(ctx, all)
}

// With at-least-once nothing is streamed before all letters are known. With exactly-once
// whoever had the slot is shut out first, as the transaction may be that one's.
func TestRelay_WaitsForDeadLettersThatATransactionHides(t *testing.T) {
	for guarantee, first := range map[Guarantee]bool{AtLeastOnce: true, ExactlyOnce: false} {
		t.Run(string(guarantee), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(fixed(110, 120, 1, "order/a/1"))
				server.origin = wal.Origin{SystemID: "7000", Timeline: 1}
				letters := &hiding{reader: new(topicLog).reader(), freed: make(chan struct{})}
				routes := outboxRoutes(t)
				var to sink.Sink = new(sinktest.Recorder)
				if guarantee == ExactlyOnce {
					to = &transactional{l: &ledger{sim: calmSim()}}
				}
				cfg := Config{Guarantee: guarantee, OnReject: DeadLetterOnReject, ParkKey: true, DeadLetterTopic: lettersTopic}
				cfg.Replication.Slot, cfg.Replication.Publication = "orders", "orders"
				relay := New(cfg, Parts{Source: server.open, Router: routes, Journal: letters, Sink: func() (sink.Sink, error) { return to, nil }}, Events{}, zerolog.Nop())
				ctx, cancel := context.WithCancel(t.Context())
				result := make(chan error, 1)
				go func() { result <- relay.Run(ctx) }()
				pass(time.Minute)
				if st := relay.Status(); st.State != status.Reconnecting || st.Reason != fault.ReasonLettersHidden || st.EventsPublished != 0 {
					t.Errorf("%s (%s) with %d records, while letters are hidden", st.State, st.Reason, st.EventsPublished)
				}
				close(letters.freed)
				pass(time.Minute)
				if st := relay.Status(); st.State != status.Streaming || st.EventsPublished != 1 {
					t.Errorf("%s (%s) with %d records in the end", st.State, st.Reason, st.EventsPublished)
				}
				cancel()
				if err := <-result; err != nil {
					t.Error(err)
				}
				if letters.asked[0] != first || !slices.Contains(letters.asked, true) {
					t.Errorf("asked for all letters: %v", letters.asked)
				}
			})
		})
	}
}
