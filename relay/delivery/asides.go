package delivery

import (
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// NoticeEvery bounds how often the log has rows of one kind.
const NoticeEvery = time.Minute

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
func (d *Delivery) tell(reason string, row *wal.Row, cause error) {
	m, now := d.m, time.Now()
	kind := asideKind{reason, row.Relation.Namespace + "." + row.Relation.Name}
	a := m.asides[kind]
	if a == nil {
		if m.asides == nil {
			m.asides = make(map[asideKind]*aside)
		}
		a = new(aside)
		m.asides[kind] = a
	}
	a.rows++
	a.last, a.cause = deadletter.RowOf(row), cause
	if now.Sub(a.told) >= NoticeEvery {
		m.tellAside(kind, a, now)
	}
}

// TellRest logs what tell left for later, or all of it.
func (m *Memory) TellRest(now time.Time, all bool) {
	for kind, a := range m.asides {
		if a.rows > 0 && (all || now.Sub(a.told) >= NoticeEvery) {
			m.tellAside(kind, a, now)
		}
	}
}

func (m *Memory) tellAside(kind asideKind, a *aside, now time.Time) {
	line := m.log.Warn().Err(a.cause).Str("reason", kind.reason).Str("table", kind.table).Int64("rows", a.rows).
		Stringer("lsn", a.last.Commit).Uint64("seq", a.last.Seq)
	a.told, a.rows, a.cause = now, 0, nil
	if m.cfg.OnReject == SkipOnReject {
		line.Msg("row skipped permanently (relay.on_reject: skip)")
		return
	}
	line.Str("topic", m.cfg.DeadLetterTopic).Msg("row goes to the dead-letter topic")
}
