package kafka

import "time"

// NewGathering is New with another time for Sends of a backlog to be gathered.
var NewGathering = newSink

// GatherTime is gatherTime.
const GatherTime = gatherTime

// Outstanding is how many Sends have no outcome.
func (k *Sink) Outstanding() int {
	k.sends.mu.Lock()
	defer k.sends.mu.Unlock()
	return k.sends.sends
}

// Settled is closed once no Send is outstanding.
func (k *Sink) Settled() <-chan struct{} { return k.sends.empty() }

// SetClock is for a sink that was sent nothing yet.
func (k *Sink) SetClock(now func() time.Time) { k.now = now }

// IdleTime is idleTime.
const IdleTime = idleTime

// Awaiting reports whether Send waits for records it gave to the client.
func (k *Sink) Awaiting() bool { return k.awaiting.Load() }
