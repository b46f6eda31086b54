package backfill

import (
	"context"
	"time"
)

// pacer holds rows back to a rate.
type pacer struct {
	rate int // rows a second; zero: no limit
	due  time.Time
}

func newPacer(rate int) pacer { return pacer{rate: rate, due: time.Now()} }

// limit is the largest batch: a tenth of a second's rows.
func (p *pacer) limit() int {
	if p.rate == 0 {
		return batchRows
	}
	return min(batchRows, max(1, p.rate/10))
}

// after is when n rows may go that are ready now. What was not used is lost after a moment, or a
// pause would be made up for.
func (p *pacer) after(now time.Time, n int) time.Time {
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

func (w *work) batchLimit() int { return w.paced.limit() }

// pace waits until n rows may go.
func (w *work) pace(ctx context.Context, n int) error {
	wait := time.Until(w.paced.after(time.Now(), n))
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
