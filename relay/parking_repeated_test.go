package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// A start repeats rows of a parked key: those before the first dead letter go to their topic, the others
// become letters again. A letter that is there before the rows ahead of it were acknowledged could be
// re-driven ahead of them, and the key would end with an older row.
func TestParking_RepeatedLettersWaitForTheRowsAheadOfThem(t *testing.T) {
	for name, batches := range map[string]func(s *fakeServer){
		"in one batch": func(s *fakeServer) {
			s.batches = append(s.batches, fixed(110, 120, 1, "order/a/1", "order/b/2", "order/a/bad", "order/a/4"))
		},
		"in several batches": func(s *fakeServer) {
			s.batches = append(s.batches, fixed(110, 120, 1, "order/a/1", "order/b/2"), fixed(130, 140, 1, "order/a/bad", "order/a/4"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer()
				batches(server)
				r := newRejecting(server)
				r.sink.Decide(refuseBad)
				cfg := Config{OnReject: DeadLetterOnReject, ParkKey: true}
				r.run(t, cfg)
				pass(time.Second)
				r.stop(t)
				held := crashed(t, server, r, cfg)
				if n := held.Counts().Waiting; n != 2 {
					t.Errorf("%d records are on their way, want the repeated rows 1 and 2", n)
				}
				held.Release()
				pass(time.Second)
				if got, letters := r.direct(), r.told(t); got != "1 2 1 2" || letters != "record_too_large:bad parked:4 parked:bad parked:4" {
					t.Errorf("delivered %q, letters %q", got, letters)
				}
				r.stop(t)
			})
		})
	}
}

// With position headers the rows of a transaction are sent once its commit was read. What waited for one
// key meanwhile says nothing of the rows of another one that are not sent yet.
func TestParking_RepeatedLettersWaitForTheRowsThatWereHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing := func() *wal.Batch {
			b := batch(110, 120, 4, "order/x/4")
			b.Rows[0].Txn.End, b.Closes = 120, 120
			return b
		}
		next := func() *wal.Batch {
			b := batch(130, 140, 1, "order/k/bad5")
			b.Rows[0].Txn.End = 140
			return b
		}
		server := newServer(open(fixed(110, 120, 1, "order/k/1", "order/j/2", "order/j/bad3")), closing, next)
		server.skipConfirmed = true
		r := newRejecting(server)
		r.sink.Decide(refuseBad)
		cfg := Config{OnReject: DeadLetterOnReject, ParkKey: true, Router: router.Config{PositionHeaders: true}}
		r.run(t, cfg)
		pass(time.Second)
		r.stop(t)
		if letters := r.told(t); letters != "record_too_large:bad3 record_too_large:bad5" {
			t.Fatalf("letters %q", letters)
		}
		held := crashed(t, server, r, cfg)
		if n := held.Counts().Waiting; n != 4 {
			t.Errorf("%d records are on their way, want those of the first transaction", n)
		}
		held.Release()
		pass(time.Second)
		if got, letters := r.direct(), r.told(t); got != "1 2 4 1 2 4" || letters != "record_too_large:bad3 record_too_large:bad5 parked:bad3 parked:bad5" {
			t.Errorf("delivered %q, letters %q", got, letters)
		}
		r.stop(t)
	})
}

// crashed starts the relay again after a crash of PostgreSQL, whose slot went back to the beginning. The
// brokers do not answer until the sink is released.
func crashed(t *testing.T, server *fakeServer, r *rejecting, cfg Config) (held *sinktest.Recorder) {
	t.Helper()
	server.mu.Lock()
	server.confirmed = 100
	server.mu.Unlock()
	held = new(sinktest.Recorder)
	held.Hold()
	r.sink = held
	r.log.mu.Lock()
	r.log.sinks = append(r.log.sinks, held)
	r.log.mu.Unlock()
	r.run(t, cfg)
	pass(time.Second)
	return held
}
