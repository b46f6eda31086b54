package sink

import (
	"context"
	"sync"
	"time"
)

// fillTime is how long a batch waits for more records in a backlog.
const fillTime = 10 * time.Millisecond

// haste decides whether batches fill or leave.
//
// The client lingers, which fills batches: the first timer that expires takes what
// every partition has along. While the client is flushed it does not linger at all. So
// at the tip every Send is followed by a flush, which lasts until all is acknowledged
// and has what comes meanwhile leave at once too. In a backlog such a flush would
// never end, and the batches would stay small for ever; it is cut short.
type haste struct {
	wanted chan struct{} // one token: something is to leave at once; nil: nothing ever is

	mu     sync.Mutex
	behind bool
	cut    context.CancelFunc // of the flush under way; nil: there is none
}

var _ Filler = (*Kafka)(nil)

// Backlog lets batches fill, or has records leave at once.
func (k *Kafka) Backlog(behind bool) {
	h := &k.haste
	h.mu.Lock()
	defer h.mu.Unlock()
	caughtUp := h.behind && !behind
	h.behind = behind
	switch {
	case behind && h.cut != nil:
		h.cut()
	case caughtUp:
		h.ask()
	}
}

// hasten has what was just sent leave at once, unless there is a backlog.
func (h *haste) hasten() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.behind {
		h.ask()
	}
}

// ask wants a flush. Without a channel the user's linger is all there is.
func (h *haste) ask() {
	select {
	case h.wanted <- struct{}{}:
	default:
	}
}

// begin gives the context of a flush; false: there is a backlog by now.
func (h *haste) begin(life context.Context) (context.Context, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.behind {
		return nil, false
	}
	var ctx context.Context
	ctx, h.cut = context.WithCancel(life)
	return ctx, true
}

func (h *haste) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut()
	h.cut = nil
}

// flushAtTip runs until Close.
func (k *Kafka) flushAtTip() {
	for {
		select {
		case <-k.haste.wanted:
		case <-k.life.Done():
			return
		}
		if ctx, ok := k.haste.begin(k.life); ok {
			_ = k.client.Load().Flush(ctx) // fails with ctx alone
			k.haste.end()
		}
	}
}
