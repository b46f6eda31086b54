package status

import (
	"sync/atomic"
	"time"
)

var started = time.Now()

// Moment is a time by the monotonic clock: setting the wall clock is no time that passes. The
// zero value is no time. It is safe from any goroutine.
type Moment struct{ since atomic.Int64 } // started; zero: no time

func instant(t time.Time) int64 { return int64(t.Sub(started)) + 1 }

// Set makes it t.
func (m *Moment) Set(t time.Time) { m.since.Store(instant(t)) }

// Begin makes it t unless it is a time already.
func (m *Moment) Begin(t time.Time) { m.since.CompareAndSwap(0, instant(t)) }

// Clear makes it no time.
func (m *Moment) Clear() { m.since.Store(0) }

// Ago is how long before now it is; false: it is no time.
func (m *Moment) Ago(now time.Time) (time.Duration, bool) {
	at := m.since.Load()
	if at == 0 {
		return 0, false
	}
	return time.Duration(instant(now) - at), true
}
