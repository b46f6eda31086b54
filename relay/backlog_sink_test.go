package relay

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// filler notes what it is told.
type filler struct {
	sinktest.Recorder
	mu   sync.Mutex
	told []bool
}

func (f *filler) SetBacklog(behind bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, behind)
}

// The sink is told when a backlog begins and ends, and not for each batch.
func TestRelay_TellsTheSinkOfABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(commit wal.LSN, backlog bool, row string) func() *wal.Batch {
			return func() *wal.Batch {
				b := batch(commit, commit+10, 1, row)
				b.Backlog = backlog
				return b
			}
		}
		server := newServer(of(110, true, "order/a/1"), of(130, true, "order/a/2"), of(150, false, "order/a/3"), of(170, false, "order/a/4"), of(190, true, "order/a/5"))
		f := new(filler)
		b := &bench{server: server, result: make(chan error, 1)}
		routes := outboxRoutes(t)
		b.relay = New(Config{}, Parts{Source: server.open, Router: routes, Sink: func() (sink.Sink, error) { return f, nil }}, Events{}, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		b.cancel = cancel
		go func() { b.result <- b.relay.Run(ctx) }()
		pass(time.Second)
		b.stop(t)
		if want := []bool{false, true, false, true}; !slices.Equal(f.told, want) {
			t.Errorf("told %v, want %v", f.told, want)
		}
	})
}
