package relay

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// probe answers what it is given.
type probe struct {
	snapshot atomic.Pointer[watch.Snapshot]
}

func (p *probe) Read(context.Context) (*watch.Snapshot, error) { return p.snapshot.Load(), nil }
func (p *probe) Close()                                        {}

func TestRelay_DriftOfThePublicationFreezesThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(fixed(110, 120, 1, "order/a/1"))
		routes := outboxRoutes(t)
		p := new(probe)
		p.snapshot.Store(&watch.Snapshot{WALEnd: 900})
		r := New(Config{}, Parts{Source: server.open, Router: routes, Probe: p, Sink: func() (sink.Sink, error) { return new(sinktest.Recorder), nil }}, Events{}, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- r.Run(ctx) }()
		pass(time.Minute)
		if server.position() != 120 {
			t.Fatalf("confirmed %s", server.position())
		}
		p.snapshot.Store(&watch.Snapshot{WALEnd: 900, Drift: &fault.Error{Kind: fault.KindDrift, Op: "check publication", Err: errors.New("table is gone")}})
		pass(6 * time.Second)
		if st := r.Status(); st.State != status.Blocked || !strings.Contains(st.Message, "restart the relay") {
			t.Fatalf("status %+v", st)
		}
		// Putting the publication back does not bring back the rows in between.
		p.snapshot.Store(&watch.Snapshot{WALEnd: 900})
		server.mu.Lock()
		server.batches = append(server.batches, fixed(130, 140, 1, "order/a/2"))
		server.mu.Unlock()
		pass(10 * time.Minute)
		if st := r.Status(); st.State != status.Blocked || server.position() != 120 || server.opens.Load() != 1 {
			t.Fatalf("%s, confirmed %s, %d sessions after the drift", st.State, server.position(), server.opens.Load())
		}
		cancel()
		if err := <-result; err != nil {
			t.Fatal(err)
		}
	})
}

func TestRelay_DriftIsSeenWhileARowBlocksAndKafkaIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(probe)
		p.snapshot.Store(&watch.Snapshot{WALEnd: 900})
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1", "/a/bad")), sink: new(sinktest.Recorder), probe: p, result: make(chan error, 1)}
		b.sink.Hold()
		b.start(t, Config{})
		pass(time.Second)
		p.snapshot.Store(&watch.Snapshot{WALEnd: 900, Drift: &fault.Error{Kind: fault.KindDrift, Op: "check publication", Err: errors.New("table is gone")}})
		pass(time.Minute)
		if st := b.relay.Status(); st.State != status.Blocked || !strings.Contains(st.Message, "table is gone") {
			t.Fatalf("status %+v", st)
		}
		b.cancel()
		<-b.result
	})
}

// A freeze may come while the reader asks for the position: what it gets then is more than what is
// frozen, and what was reported never goes back.
func TestRelay_AFrozenPositionTakesNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{}, newServer(fixed(110, 120, 1, "order/a/1")))
		pass(2 * time.Second)
		s := b.relay.session.Load()
		s.frozen.Store(100)
		if got := s.confirmed(); got != 120 || s.reported.Load() != 120 {
			t.Errorf("confirmed %s, reported %d, want 120 and no less", got, s.reported.Load())
		}
		s.frozen.Store(0)
		b.stop(t)
	})
}
