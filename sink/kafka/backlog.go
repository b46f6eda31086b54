package kafka

import (
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/producer"
)

const (
	// gatherTime is how long a Send of a backlog waits for others at most.
	gatherTime = 15 * time.Millisecond

	// gatherBytes is how much is gathered at most: what one request takes.
	gatherBytes = producer.MaxRequestBytes
)

// gathered are the Sends of a backlog that the client was not given yet.
//
// franz-go does not linger: while the relay is caught up a record is sent at once, together with what
// came during the last request. In a backlog a quick broker answers between two reads of the stream,
// and a batch would hold few records: 18, where 130 come together if the client gets all Sends of some
// milliseconds at once.
//
// A linger that the configuration sets replaces this: nothing is gathered then.
type gathered struct {
	mu      sync.Mutex // also held while the client is given records: they keep their order
	backlog bool
	batches []*inFlightBatch
	bytes   int
	timer   *time.Timer // runs while there are batches; nil before the first
}

var _ sink.Gatherer = (*Sink)(nil)

// SetBacklog has Sends be gathered from now on, or not. What was gathered leaves when they
// are not.
func (k *Sink) SetBacklog(behind bool) {
	g := &k.gathered
	g.mu.Lock()
	defer g.mu.Unlock()
	g.backlog = behind && k.cfg.Linger == 0
	if !g.backlog {
		k.release()
	}
}

// gather gives a Send to the client, now or with others.
func (k *Sink) gather(f *inFlightBatch) {
	g := &k.gathered
	g.mu.Lock()
	defer g.mu.Unlock()
	g.batches = append(g.batches, f)
	g.bytes += f.size
	switch {
	case !g.backlog || g.bytes >= gatherBytes || k.halted.Load():
		k.release()
	case len(g.batches) > 1: // the timer runs
	case g.timer == nil:
		g.timer = time.AfterFunc(k.gatherTime, k.releaseGathered)
	default:
		g.timer.Reset(k.gatherTime)
	}
}

// releaseGathered gives the client what was gathered.
func (k *Sink) releaseGathered() {
	k.gathered.mu.Lock()
	defer k.gathered.mu.Unlock()
	k.release()
}

// release is releaseGathered for a caller that holds mu.
func (k *Sink) release() {
	g := &k.gathered
	if g.timer != nil {
		g.timer.Stop()
	}
	for i, f := range g.batches {
		k.give(f)
		g.batches[i] = nil
	}
	g.batches, g.bytes = g.batches[:0], 0
}

// give hands a Send to the client and fails what cannot be.
func (k *Sink) give(f *inFlightBatch) {
	err := k.produce(f)
	if n := len(f.rest); n > 0 {
		first := 0
		if err != nil {
			k.halt(false)
			f.fail(f.rest[0], err)
			first = 1
		}
		for _, i := range f.rest[first:] {
			f.fail(i, k.heldBack())
		}
		k.countOutcomes(f, n)
	}
	k.countOutcomes(f, 1)
}
