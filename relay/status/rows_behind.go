package status

import (
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// density is how many rows came in how much WAL of late, by which a backlog in bytes becomes one in rows,
// roughly: the WAL has the changes of other tables too. It has no clock and is guarded by the monitor's lock.
type density struct {
	points []passed // oldest first, densityStep apart, of the last densityOver
}

type passed struct {
	at        time.Time
	rows      int64
	confirmed wal.LSN
}

const (
	densityOver  = 10 * time.Minute
	densityStep  = 10 * time.Second
	densityAfter = 10 * time.Second // nothing is said before
)

// observe takes how many rows were delivered, and the confirmed position. One that goes back is of another
// history.
func (d *density) observe(now time.Time, rows int64, confirmed wal.LSN) {
	if n := len(d.points); n > 0 {
		last := d.points[n-1]
		if confirmed < last.confirmed || rows < last.rows {
			d.points = d.points[:0]
		} else if now.Sub(last.at) < densityStep {
			return
		}
	}
	for len(d.points) > 0 && now.Sub(d.points[0].at) > densityOver {
		d.points = d.points[1:]
	}
	d.points = append(d.points, passed{now, rows, confirmed})
}

// rowsIn estimates the rows in so many bytes of WAL; false: nothing is known of it.
func (d *density) rowsIn(bytes int64) (rows int64, known bool) {
	if len(d.points) < 2 {
		return 0, false
	}
	first, last := d.points[0], d.points[len(d.points)-1]
	if last.at.Sub(first.at) < densityAfter || last.confirmed == first.confirmed {
		return 0, false
	}
	return int64(float64(bytes) * float64(last.rows-first.rows) / float64(last.confirmed-first.confirmed)), true
}

// rowsBehind estimates the rows that wait; nil: nothing is known. Call it with the lock held.
func (b *Monitor) rowsBehind(st *Status) *int64 {
	if st.State != Streaming || st.Reason != "" || st.LagBytes == nil || *st.LagBytes < leastRowsBehind {
		return nil
	}
	rows, known := b.density.rowsIn(*st.LagBytes)
	if !known {
		return nil
	}
	return &rows
}

// leastRowsBehind is a backlog, in bytes, of which an estimate is of any use.
const leastRowsBehind = 1 << 20

// weigh takes note of what was delivered with which WAL.
func (b *Monitor) weigh(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != nil {
		b.density.observe(now, b.Published.Load(), wal.LSN(b.session.Positions().Confirmed))
	}
}
