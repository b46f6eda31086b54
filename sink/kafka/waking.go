package kafka

import "time"

// idleTime is how long nothing was sent to a partition when its broker may have forgotten
// the producer. It does so a day after the latest timestamp, and looks every ten minutes;
// timestamps are the rows' own, so they may be a day old when they are sent.
const idleTime = 5 * time.Minute

// idle reports whether the record that is counted at now wakes the queue. The first one of a queue
// does not: the client is new to the partition, and sends one batch by itself. A clock that
// was set back proves nothing, so the queue counts as idle.
func (q *partitionQueue) idle(now int64) bool {
	return q.last != 0 && uint64(now-q.last) > uint64(idleTime)
}

// waking has, for each topic, the record that woke a partition of it and is not answered.
type waking map[string]woken

// woken names a record without its context, which is another record's once this one is answered.
type woken struct {
	queue *partitionQueue
	seq   uint64
}

func (w waking) with(topic string, queue *partitionQueue, seq uint64) waking {
	if w == nil {
		w = make(waking)
	}
	w[topic] = woken{queue, seq}
	return w
}

// holds reports whether records of the topic have to wait, and forgets what was answered.
func (w waking) holds(topic string) bool {
	if len(w) == 0 {
		return false
	}
	first, ok := w[topic]
	if ok && first.answered() {
		delete(w, topic)
		return false
	}
	return ok
}

func (w woken) answered() bool { return w.queue.settled.Load() >= w.seq }

// awaitWaking waits until the first record that was left can be handed over, if it is held by
// one that woke its partition. Nothing left, nothing waits: other topics go on.
func (k *Sink) awaitWaking(f *inFlightBatch) error {
	if len(f.rest) == 0 || len(k.waking) == 0 {
		return nil
	}
	first, ok := k.waking[f.records[f.rest[0]].Topic]
	if !ok {
		return nil
	}
	k.awaiting.Store(true)
	defer k.awaiting.Store(false)
	for !first.answered() {
		select {
		case <-k.placed:
		case <-f.ctx.Done():
			return interrupted(f.ctx)
		}
	}
	return nil
}
