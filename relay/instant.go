package relay

import "time"

var started = time.Now()

// instant is a moment as a number, by the monotonic clock: setting the wall clock is
// no time that passes. It is never zero.
func instant(t time.Time) int64 { return int64(t.Sub(started)) + 1 }
