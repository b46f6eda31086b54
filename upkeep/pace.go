package upkeep

import "time"

// pace spreads rows over time. The zero value lets all pass.
type pace struct {
	rate int // rows a second; zero: no limit
	free time.Time
}

// take counts rows, and returns how long to wait before them.
func (p *pace) take(now time.Time, rows int) time.Duration {
	if p.rate <= 0 {
		return 0
	}
	wait := max(0, p.free.Sub(now))
	p.free = now.Add(wait + time.Duration(rows)*time.Second/time.Duration(p.rate))
	return wait
}

// namedBatches is how many transactions' rows are proven together: waiting for the slots costs
// the same for one row and for many.
const namedBatches = 20

// batch is how many rows one transaction has at most: no more than a second's.
func (l *Limits) batch() int {
	if l.MaxRowsPerSecond > 0 {
		return max(1, min(l.BatchRows, l.MaxRowsPerSecond))
	}
	return max(1, l.BatchRows)
}

// Named is how many rows are proven together: no more than ten seconds' worth.
func (l *Limits) Named() int {
	n := namedBatches * l.batch()
	if l.MaxRowsPerSecond > 0 {
		n = min(n, 10*l.MaxRowsPerSecond)
	}
	return max(l.batch(), n)
}

// size is how many rows the next transaction takes. A statement that comes upon a lock and
// waits for it in vain is tried again with half of its rows.
type size struct {
	most, now int
	stalls    int // in succession
}

// maxStalls is how many transactions may wait for a lock in vain, one after the other, once
// smaller ones are of no use.
const maxStalls = 3

func (s *size) done() { s.stalls, s.now = 0, min(s.most, 2*s.now) }

// stalled says what follows from a lock timeout of a statement with n rows: skip leaves the row
// for another pass; stop gives up. With locked rows left out (alone is false), a stall is a lock
// of the whole table, and fewer rows are of no use.
func (s *size) stalled(n int, alone bool) (skip, stop bool) {
	if !alone || n == 1 {
		s.stalls++
	}
	if s.stalls >= maxStalls {
		return false, true
	}
	s.now = max(1, n/2)
	return alone && n == 1, false
}
