package relay

import "github.com/cdc-relay/cdc-relay/replication/wal"

// furthest tells sessions that get on from those that repeat what an earlier one did,
// which must come ever more rarely: each sends the same rows again. Owned by one
// goroutine.
type furthest struct {
	start wal.LSN // where the last sessions began
	rows  int64   // most that one of them delivered from there
}

// progressed reports whether a session delivered rows that none before it did. It may have
// confirmed nothing: the rows are part of a large transaction. With `once` no row is delivered by
// two sessions.
func (r *furthest) progressed(start wal.LSN, rows int64, once bool) bool {
	if start != r.start {
		*r = furthest{start: start}
	}
	more := rows > r.rows || once && rows > 0
	r.rows = max(r.rows, rows)
	return more
}
