package delivery

import (
	"math/rand/v2"
	"time"
)

// Backoff yields delays that double from Min to Max, each shortened by a random
// part so that relays do not return in step. Owned by one goroutine.
type Backoff struct {
	Min, Max time.Duration
	next     time.Duration
}

// Delay is the next one.
func (b *Backoff) Delay() time.Duration {
	b.next = min(max(b.next, b.Min), b.Max)
	d := b.next/2 + rand.N(b.next/2+1)
	b.next *= 2
	return d
}

// Reset begins again with Min.
func (b *Backoff) Reset() { b.next = 0 }
