package relay

import (
	"math/rand/v2"
	"time"
)

// backoff yields delays that double from min to max, each shortened by a random
// part so that relays do not return in step. Owned by one goroutine.
type backoff struct {
	min, max time.Duration
	next     time.Duration
}

func (b *backoff) delay() time.Duration {
	b.next = min(max(b.next, b.min), b.max)
	d := b.next/2 + rand.N(b.next/2+1)
	b.next *= 2
	return d
}

func (b *backoff) reset() { b.next = 0 }
