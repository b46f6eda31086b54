package relay

import (
	"math/rand/v2"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
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

// reach tells sessions that get on from those that repeat what an earlier one did,
// which must come ever more rarely: each sends the same rows again. Owned by one
// goroutine.
type reach struct {
	start wal.LSN // where the last sessions began
	rows  int64   // most that one of them delivered from there
}

// further says that a session delivered rows that none before it did, though it may
// have confirmed nothing: they are part of a large transaction. With `once` no row is
// delivered by two sessions.
func (r *reach) further(start wal.LSN, rows int64, once bool) bool {
	if start != r.start {
		*r = reach{start: start}
	}
	more := rows > r.rows || once && rows > 0
	r.rows = max(r.rows, rows)
	return more
}
