package admin

import (
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
)

// A relay at which nobody looks and in which nothing happens is sampled less often: what there is to see
// is what was there before. quietEvery is less than the ten seconds of a coarse figure, so that each has a sample.
const (
	sampleEvery = time.Second
	quietEvery  = 9 * time.Second
	quietAfter  = 10 // samples in which nothing happened
)

// Waker is how the relay tells a console that samples less often that something happens. A nil one tells
// nothing. Its methods are safe from any goroutine.
type Waker struct {
	quiet atomic.Bool
	woken chan struct{}
}

// NewWaker makes one.
func NewWaker() *Waker { return &Waker{woken: make(chan struct{}, 1)} }

// Wake has the console sample each second again. It costs one look at a number while it does so anyway.
func (w *Waker) Wake() {
	if w == nil || !w.quiet.Load() || !w.quiet.CompareAndSwap(true, false) {
		return
	}
	w.call()
}

func (w *Waker) call() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// calls is nil, and never ready, without a waker.
func (w *Waker) calls() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.woken
}

func (w *Waker) set(quiet bool) {
	if w != nil {
		w.quiet.Store(quiet)
	}
}

// pause is how long it is to the next sample.
func (c *Console) pause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sampled.quiet {
		return quietEvery
	}
	return sampleEvery
}

// weigh counts samples in which nothing happened, and decides how soon the next one comes. Call it with the
// lock held, before the sample is remembered.
func (c *Console) weigh(st *status.Status) {
	p := &c.sampled
	still := (st.State == status.Streaming || st.State == status.Standby) && st.State == p.state && st.Reason == "" && p.reason == "" &&
		st.CatchUp == nil && st.InFlightEvents == 0 && st.RowsRead == p.read && st.EventsPublished == p.acked && c.streams.number() == 0
	if !still {
		p.still = 0
	} else if p.still < quietAfter {
		p.still++
	}
	p.quiet = c.tools.Waker != nil && p.still >= quietAfter
	c.tools.Waker.set(p.quiet)
}

// bridge repeats the last sample up to now, where samples were left out because nothing happened. Call it with
// the lock held.
func (c *Console) bridge(now time.Time) {
	p := &c.sampled
	if !p.quiet || now.Sub(p.at) > 2*quietEvery { // after a longer time, the process stood still
		return
	}
	for next := p.at.Add(sampleEvery); next.Before(now); next = next.Add(sampleEvery) {
		if c.ring != nil {
			c.ring.Add(next, p.last)
		}
		p.at = next
	}
}

// wake goes back to a sample each second. Nothing happened until now, so what was known holds until now.
func (c *Console) wake(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.sampled
	if p.quiet {
		c.bridge(now)
		p.at = now
	}
	p.quiet, p.still = false, 0
	c.tools.Waker.set(false)
}

// looked samples at once for somebody who looks after a time in which nobody did.
func (c *Console) looked(now time.Time) {
	c.mu.Lock()
	quiet := c.sampled.quiet
	c.mu.Unlock()
	if quiet {
		c.Sample(now)
		c.tools.Waker.call()
	}
}
