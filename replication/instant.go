package replication

import "time"

var started = time.Now()

// instant is a moment as a number, by the monotonic clock: a wall clock that is set
// must neither look like silence nor hide it. It is never zero.
func instant(t time.Time) int64 { return int64(t.Sub(started)) + 1 }
