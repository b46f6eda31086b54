package kafka

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// fillTime is how long a batch waits for more records in a backlog.
	fillTime = 15 * time.Millisecond

	// fewSends is how many Sends may be without an answer for the next one to leave at
	// once, and flushDelay how long it waits at most when there are more.
	fewSends   = 1
	flushDelay = time.Millisecond
)

// tipFlusher decides whether batches fill or leave.
//
// The client lingers, which fills batches: the first timer that expires takes what
// every partition has along. At the tip it is told not to wait: at once as long as
// little is on its way, and else, for all that came meanwhile together, when the
// answers are there or flushDelay is over. So a lone record leaves at once, and many do
// not become as many requests, which brokers, consumers and this process would all
// pay for, and which would be later for that.
//
// What the client keeps back by itself begins to linger afterwards: the second batch of a
// partition, what comes for a partition before its first request to that broker is
// answered, the first record of a topic, which is not in the client's list yet, and what
// is tried again. So it is told a second time, flushDelay later, if there is anything
// then; what is kept back for longer leaves after fillTime at the latest.
type tipFlusher struct {
	wanted chan struct{} // one token: something is to leave; nil: nothing ever is
	calm   chan struct{} // one token: little is on its way, or was a moment ago; nil as wanted is
	sends  atomic.Int64  // without an outcome, those that wait for room included

	mu     sync.Mutex
	behind bool
}

var _ sink.Filler = (*Sink)(nil)

// Backlog lets batches fill, or has records leave at once.
func (k *Sink) Backlog(behind bool) {
	t := &k.tip
	t.mu.Lock()
	defer t.mu.Unlock()
	caughtUp := t.behind && !behind
	t.behind = behind
	if caughtUp {
		t.ask()
	}
}

// flushSoon has what was just sent leave, unless there is a backlog.
func (t *tipFlusher) flushSoon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.behind {
		t.ask()
	}
}

// ask wants records to leave. Without a channel the user's linger is all there is.
func (t *tipFlusher) ask() {
	select {
	case t.wanted <- struct{}{}:
	default:
	}
}

// settled counts a Send that has its outcome.
func (t *tipFlusher) settled() {
	if t.sends.Add(-1) <= fewSends {
		select {
		case t.calm <- struct{}{}:
		default:
		}
	}
}

// atTip is false when there is a backlog by now.
func (t *tipFlusher) atTip() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.behind
}

// start runs the tip flusher until Close.
func (k *Sink) start() {
	if k.started {
		return
	}
	k.started = true
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tip.wanted != nil && !k.closed.Load() {
		k.running.Go(k.flushAtTip)
	}
}

// flushAtTip runs until Close.
func (k *Sink) flushAtTip() {
	// A flush whose context is over ends all lingering and waits for nothing.
	over, cancel := context.WithCancel(k.life)
	cancel()
	delay, again := time.NewTimer(0), time.NewTimer(0)
	for {
		first := false
		select {
		case <-k.tip.wanted:
			first = true
		case <-again.C:
		case <-k.life.Done():
			return
		}
		if !first && k.tip.sends.Load() == 0 || !k.tip.atTip() {
			continue
		}
		_ = k.client.Load().Flush(over) // fails with over alone
		if first {
			again.Reset(flushDelay)
		}
		delay.Reset(flushDelay)
		k.awaitAnswers(delay.C)
	}
}

// awaitAnswers waits for answers.
func (k *Sink) awaitAnswers(limit <-chan time.Time) {
	for k.tip.sends.Load() > fewSends {
		select {
		case <-k.tip.calm:
		case <-limit:
			return
		case <-k.life.Done():
			return
		}
	}
}
