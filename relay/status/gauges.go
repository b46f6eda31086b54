package status

import (
	"sync/atomic"
	"time"
)

// Gauges are what a session keeps for the status. They are safe from any goroutine.
type Gauges struct {
	Full Moment // since when the window is full

	confirmedAt atomic.Int64 // when the confirmed position moved
	newest      atomic.Int64 // commit time of the last row that was taken
	newestAt    Moment       // when it was taken
}

// ConfirmMoved takes note of a confirmed position that moved.
func (g *Gauges) ConfirmMoved(now time.Time) { g.confirmedAt.Store(now.UnixNano()) }

// LastConfirm is when the confirmed position moved last; the zero time: it did not.
func (g *Gauges) LastConfirm() time.Time {
	at := g.confirmedAt.Load()
	if at == 0 {
		return time.Time{}
	}
	return time.Unix(0, at)
}

// Took takes note of rows: the commit time of the last one, and when it was read.
func (g *Gauges) Took(commit, read time.Time) {
	g.newest.Store(commit.UnixNano())
	g.newestAt.Set(read)
}

// NewestCommit is the commit time of the row that was read last, and how long ago that was; the zero
// time: none was.
func (g *Gauges) NewestCommit(now time.Time) (commit time.Time, ago time.Duration) {
	ago, taken := g.newestAt.Ago(now)
	if !taken {
		return time.Time{}, 0
	}
	return time.Unix(0, g.newest.Load()), ago
}
