package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// noticeEvery bounds how often what the router noticed is logged: it may be about
// every row.
const noticeEvery = time.Minute

// notice logs, by table and column, what was made of rows that an operator would
// want to know of although none of them is refused.
func (r *Relay) notice(now time.Time) {
	r.tellRest(now, false)
	if now.Sub(r.noticed) < noticeEvery {
		return
	}
	list := r.parts.Router.Notices()
	if len(list) > 0 {
		r.noticed = now
	}
	for _, n := range list {
		line := r.log.Warn().Str("table", n.Table).Stringer("lsn", n.Commit).Int64("rows", n.Rows)
		if n.Column != "" {
			line = line.Str("column", n.Column)
		}
		line.Msg(n.Text)
	}
}

// asideKind is what rows that are set aside have in common in the log.
type asideKind struct{ reason, table string }

// aside is what the log has not said yet of rows of a kind that were set aside.
type aside struct {
	told  time.Time
	rows  int64
	last  deadletter.Row
	cause error // of the last
}

// tell logs a row that is set aside: the first of its reason and table at once, those of
// the next minute in one line. Metrics count each.
func (s *session) tell(reason string, row *wal.Row, cause error) {
	r, now := s.r, time.Now()
	kind := asideKind{reason, row.Relation.Namespace + "." + row.Relation.Name}
	a := r.asides[kind]
	if a == nil {
		if r.asides == nil {
			r.asides = make(map[asideKind]*aside)
		}
		a = new(aside)
		r.asides[kind] = a
	}
	a.rows++
	a.last, a.cause = deadletter.RowOf(row), cause
	if now.Sub(a.told) >= noticeEvery {
		r.tellAside(kind, a, now)
	}
}

// tellRest logs what tell left for later, or all of it.
func (r *Relay) tellRest(now time.Time, all bool) {
	for kind, a := range r.asides {
		if a.rows > 0 && (all || now.Sub(a.told) >= noticeEvery) {
			r.tellAside(kind, a, now)
		}
	}
}

func (r *Relay) tellAside(kind asideKind, a *aside, now time.Time) {
	line := r.log.Warn().Err(a.cause).Str("reason", kind.reason).Str("table", kind.table).Int64("rows", a.rows).
		Stringer("lsn", a.last.Commit).Uint64("seq", a.last.Seq)
	a.told, a.rows, a.cause = now, 0, nil
	if r.cfg.OnReject == SkipOnReject {
		line.Msg("row skipped permanently (relay.on_reject: skip)")
		return
	}
	line.Str("topic", r.cfg.DeadLetterTopic).Msg("row goes to the dead-letter topic")
}
