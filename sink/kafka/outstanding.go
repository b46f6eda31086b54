package kafka

import "sync"

// outstanding counts the Sends whose done has not returned. Any goroutine may use it. It
// bounds nothing: the relay's window does, see relay/session.go.
type outstanding struct {
	mu    sync.Mutex
	sends int
	none  chan struct{} // closed when the last one ends; nil when nobody waits
}

func (o *outstanding) add() {
	o.mu.Lock()
	o.sends++
	o.mu.Unlock()
}

func (o *outstanding) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sends--; o.sends == 0 && o.none != nil {
		close(o.none)
		o.none = nil
	}
}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// empty is closed once no Send is outstanding.
func (o *outstanding) empty() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sends == 0 {
		return closedChannel
	}
	if o.none == nil {
		o.none = make(chan struct{})
	}
	return o.none
}
