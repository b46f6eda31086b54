package upkeep

import "time"

// pace spreads rows over time. The zero value lets all pass.
type pace struct {
	rate int // rows a second; zero: no limit
	free time.Time
}

// madeUp is how much of a delay is made up for by going faster afterwards.
const madeUp = 200 * time.Millisecond

// late is how many rows are due by now.
func (p *pace) late(now time.Time) int {
	if p.rate <= 0 || p.free.IsZero() || p.free.After(now) {
		return 0
	}
	return int(min(madeUp, now.Sub(p.free)) * time.Duration(p.rate) / time.Second)
}

// take counts rows, and returns how long to wait before them.
func (p *pace) take(now time.Time, rows int) time.Duration {
	if p.rate <= 0 {
		return 0
	}
	switch earliest := now.Add(-madeUp); {
	case p.free.IsZero():
		p.free = now
	case p.free.Before(earliest):
		p.free = earliest
	}
	wait := max(0, p.free.Sub(now))
	p.free = p.free.Add(time.Duration(rows) * time.Second / time.Duration(p.rate))
	return wait
}

// namedBatches is how many batches wait for the slots together, at most.
const namedBatches = 20

// Where the number of rows a second is limited they go in pieces: a large transaction holds up whoever shares
// processors, disk and WAL with it. At 5 000 rows a second 25 pieces put 1.1 ms on the p99 of the stream, 50 and
// 100 pieces 0.4 ms; a row costs 6, 7 and 9 µs of the server's CPU time in them.
const (
	pieces    = 50 // a second
	smallRows = 50 // of a piece that is no burden
)

// Batch is how many rows are named together: no more than a second's.
func (l *Limits) Batch() int {
	if l.MaxRowsPerSecond > 0 {
		return max(1, min(l.BatchRows, l.MaxRowsPerSecond))
	}
	return max(1, l.BatchRows)
}

// transactionRows is how many rows one transaction has at most.
func (l *Limits) transactionRows() int {
	if l.MaxRowsPerSecond > 0 {
		return max(1, min(l.Batch(), max(smallRows, l.MaxRowsPerSecond/pieces)))
	}
	return l.Batch()
}

// Ahead is how many rows wait for the slots at most: no more than ten seconds' worth.
func (l *Limits) Ahead() int {
	n := namedBatches * l.Batch()
	if l.MaxRowsPerSecond > 0 {
		n = min(n, 10*l.MaxRowsPerSecond)
	}
	return max(l.Batch(), n)
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

// next is how many rows a transaction takes. Where those that are due by now are more than a piece,
// on a server that is slow to answer, they go together.
func (s *size) next(due, batch int) int {
	if s.now < s.most {
		return s.now
	}
	return max(s.now, min(due, batch))
}

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
	s.now = max(1, min(n, s.most)/2)
	return alone && n == 1, false
}
