// Package rejected holds what a relay says and remembers of rows that can never be delivered:
// Log counts and logs them, Letters makes their dead letters and parks their keys. Which rows
// those are, and whether they are skipped, kept as dead letters or block the relay, is decided
// in package delivery.
package rejected

import (
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/rs/zerolog"
)

// Log counts rejected rows, each once, and logs rows that are set aside. One goroutine uses it.
type Log struct {
	Out   zerolog.Logger
	Topic string // of the dead letters; empty: rows are skipped

	// Count is called once for each row, however often it is tried.
	Count func(reason, table string, row wal.Place, err error)

	counted recent
	asides  map[kind]*aside
}

// Reject counts a row unless it was counted, also when a later session reads it again.
func (l *Log) Reject(reason, table string, row wal.Place, err error) {
	if l.counted.add(row) {
		l.Count(reason, table, row, err)
	}
}

// Forget forgets the rows that were counted: other rows have their positions now.
func (l *Log) Forget() { l.counted = recent{} }

// Every bounds how often the log has rows of one kind.
const Every = time.Minute

// kind is what rows that are set aside have in common in the log.
type kind struct{ reason, table string }

// aside are rows of a kind that were set aside and are not in the log yet.
type aside struct {
	logged time.Time // when the kind was in the log last
	rows   int64
	last   wal.Place
	cause  error // of the last
}

// Aside logs a row that is skipped or becomes a dead letter: the first of its reason and table
// at once, those of the next minute in one line. Metrics count each.
func (l *Log) Aside(reason string, row *wal.Row, cause error) {
	now, k := time.Now(), kind{reason, row.Relation.Qualified()}
	a := l.asides[k]
	if a == nil {
		if l.asides == nil {
			l.asides = make(map[kind]*aside)
		}
		a = new(aside)
		l.asides[k] = a
	}
	a.rows++
	a.last, a.cause = row.Place(), cause
	if now.Sub(a.logged) >= Every {
		l.write(k, a, now)
	}
}

// Flush logs the rows that Aside left for later; with all also those whose minute is not over.
func (l *Log) Flush(now time.Time, all bool) {
	for k, a := range l.asides {
		if a.rows > 0 && (all || now.Sub(a.logged) >= Every) {
			l.write(k, a, now)
		}
	}
}

func (l *Log) write(k kind, a *aside, now time.Time) {
	line := l.Out.Warn().Err(a.cause).Str("reason", k.reason).Str("table", k.table).Int64("rows", a.rows).
		Stringer("lsn", a.last.Commit).Uint64("seq", a.last.Ordinal)
	a.logged, a.rows, a.cause = now, 0, nil
	if l.Topic == "" {
		line.Msg("row skipped permanently (relay.on_reject: skip)")
		return
	}
	line.Str("topic", l.Topic).Msg("row goes to the dead-letter topic")
}

// recent remembers the rows that were added last: more of them than a session that is lost
// can bring again in practice.
type recent struct {
	known map[wal.Place]struct{}
	ring  []wal.Place
	next  int
}

const maxRecent = 4096

// add reports whether a row was not there.
func (r *recent) add(row wal.Place) bool {
	if _, ok := r.known[row]; ok {
		return false
	}
	if r.known == nil {
		r.known = make(map[wal.Place]struct{})
	}
	if len(r.ring) < maxRecent {
		r.ring = append(r.ring, row)
	} else {
		delete(r.known, r.ring[r.next])
		r.ring[r.next] = row
		r.next = (r.next + 1) % maxRecent
	}
	r.known[row] = struct{}{}
	return true
}

// LogNotices logs rows that were changed on their way although none of them was refused.
func LogNotices(log zerolog.Logger, list []record.Notice) {
	for _, n := range list {
		line := log.Warn().Str("table", n.Table).Stringer("lsn", n.Commit).Int64("rows", n.Rows)
		if n.Column != "" {
			line = line.Str("column", n.Column)
		}
		line.Msg(n.Text)
	}
}
