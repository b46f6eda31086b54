package backfill

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Rows that are read and not acknowledged are no progress, and do not complete a backfill.
func TestReading_CountsWhatIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &work{settings: relay.Config{Guarantee: relay.ExactlyOnce}}
		w.track.Begin(progress.Place{})
		spot := &progress.Spot{First: 1}
		for range 10 {
			spot.Add([][]byte{[]byte("x")})
		}
		w.track.Fly(spot)
		w.read.Store(10)
		var complete atomic.Bool
		w.end.complete = func() { complete.Store(true) }
		r := &reading{w: w, allRead: make(chan struct{})}
		close(r.allRead)
		var confirmed atomic.Uint64
		confirmed.Store(uint64(progress.Position(3)))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.followProgress(ctx, func() wal.LSN { return wal.LSN(confirmed.Load()) })
		}()
		<-time.After(5 * writeEvery)
		if rows := w.track.Now().Rows; rows != 3 || complete.Load() {
			t.Errorf("3 of 10 rows are acknowledged, and the progress is %d, complete %t", rows, complete.Load())
		}
		confirmed.Store(uint64(progress.Position(10)))
		<-time.After(writeEvery)
		if rows := w.track.Now().Rows; rows != 10 || !complete.Load() {
			t.Errorf("all rows are acknowledged, and the progress is %d, complete %t", rows, complete.Load())
		}
		cancel()
		<-ended
	})
}

// A relay may stream again by then: what is on its way would land after its newer rows, so the
// session ends as one that lost its connection, and does not drain.
func TestReading_EndsAsLostWithTheSlotsOfAReplay(t *testing.T) {
	for name, lost := range map[string]bool{"stopped": false, "lost": true} {
		w := &work{replay: &replay{lost: make(chan struct{})}}
		ends, abort := context.WithCancel(t.Context())
		r := &reading{w: w, ends: ends, abort: abort}
		intake, stop := context.WithCancel(t.Context())
		if lost {
			close(w.replay.lost)
		}
		stop()
		err := r.ended(intake, nil)
		if got := err != nil && postgres.KindOf(err) == fault.KindRetry; got != lost {
			t.Errorf("%s: %v", name, err)
		}
		select {
		case <-r.Lost():
			if !lost {
				t.Errorf("%s: it counts as lost", name)
			}
		default:
			if lost {
				t.Errorf("%s: it does not count as lost", name)
			}
		}
		abort()
	}
}
