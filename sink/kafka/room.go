package kafka

import (
	"context"
	"sync"
	"sync/atomic"
)

// room bounds the bytes that the sink holds. The client's own bound is not used:
// waiting for it ties a record's life to the context that bounds the wait. One
// goroutine takes, any may give.
type room struct {
	limit int

	mu      sync.Mutex
	used    int
	sends   int
	changed chan struct{} // closed at the next change; nil when nobody waits
}

// take waits for room. More than the limit is admitted when nothing else is
// held. It gives up, having taken all the same, when ctx ends; a halt ends the
// wait too, as nothing will be produced then.
func (r *room) take(ctx context.Context, size int, halted *atomic.Bool) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.used > 0 && r.used+size > r.limit && !halted.Load() && err == nil {
		changed := r.watch()
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			err = interrupted(ctx)
		}
		r.mu.Lock()
	}
	r.used += size
	r.sends++
	return err
}

func (r *room) give(size int) {
	r.mu.Lock()
	r.used -= size
	r.sends--
	r.notify()
	r.mu.Unlock()
}

func (r *room) wake() {
	r.mu.Lock()
	r.notify()
	r.mu.Unlock()
}

// empty is closed once nothing is held.
func (r *room) empty() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.mu.Lock()
		defer r.mu.Unlock()
		for r.sends > 0 {
			changed := r.watch()
			r.mu.Unlock()
			<-changed
			r.mu.Lock()
		}
	}()
	return done
}

func (r *room) watch() <-chan struct{} {
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

func (r *room) notify() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}
