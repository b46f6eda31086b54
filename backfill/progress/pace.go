package progress

import "time"

// Pacer holds rows back to a rate.
type Pacer struct {
	rate int // rows a second; zero: no limit
	due  time.Time
}

// NewPacer begins now. A rate of zero is no limit.
func NewPacer(rate int) Pacer { return Pacer{rate: rate, due: time.Now()} }

// Limit is the largest batch: a tenth of a second's rows, and no more than most.
func (p *Pacer) Limit(most int) int {
	if p.rate == 0 {
		return most
	}
	return min(most, max(1, p.rate/10))
}

// After is when n rows may go that are ready now. What was not used is lost after a moment, or a
// pause would be made up for.
func (p *Pacer) After(now time.Time, n int) time.Time {
	if p.rate == 0 {
		return now
	}
	if early := now.Add(-100 * time.Millisecond); p.due.Before(early) {
		p.due = early
	}
	at := p.due
	p.due = p.due.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
	return at
}
