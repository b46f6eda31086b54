package kafka

import "time"

// NewFilling is NewKafka with another time for batches to fill in a backlog, which is
// FillTime.
var NewFilling = newKafka

// FillTime is fillTime.
const FillTime = fillTime

// Unhurry returns, in a backlog, when the client is not being told to hurry any more: the
// first of two requests is heard once that is over.
func (k *Sink) Unhurry() {
	for range 2 {
		k.tip.wanted <- struct{}{}
	}
}

// Unanswered is how many Sends have no outcome.
func (k *Sink) Unanswered() int64 { return k.tip.sends.Load() }

// SetClock is for a sink that was sent nothing yet.
func (k *Sink) SetClock(now func() time.Time) { k.now = now }

// IdleTime is idleTime.
const IdleTime = idleTime

// Awaiting says whether Send waits for records it gave to the client.
func (k *Sink) Awaiting() bool { return k.awaiting.Load() }
