// Package retry decides when the next attempt comes, from what the attempts before it did. It opens
// nothing and waits for nothing; all of it is owned by one goroutine.
package retry

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Backoff yields delays that double from Min to Max, each shortened by a random
// part so that relays do not return in step.
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

// Furthest is how far the sessions from one position came. A session that only repeats what an
// earlier one did sends the same rows again, so such sessions must come ever more rarely.
type Furthest struct {
	start wal.LSN // where the last sessions began
	rows  int64   // most that one of them delivered from there
}

// Progressed reports whether a session delivered rows that none before it did. It may have
// confirmed nothing: the rows are part of a large transaction. With `once` no row is delivered by
// two sessions.
func (r *Furthest) Progressed(start wal.LSN, rows int64, once bool) bool {
	if start != r.start {
		*r = Furthest{start: start}
	}
	more := rows > r.rows || once && rows > 0
	r.rows = max(r.rows, rows)
	return more
}

// Repetition counts how often the same error came in a row. Numbers in it may differ: each connection
// has another port.
type Repetition struct {
	text string
	n    int
}

// Count returns how often err came in a row, this time included.
func (r *Repetition) Count(err error) int {
	text := ""
	if err != nil {
		text = strings.Map(withoutDigits, err.Error())
	}
	if err == nil || text != r.text {
		r.text, r.n = text, 0
	}
	r.n++
	return r.n
}

func withoutDigits(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}
	return r
}
