package status

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/wording"
)

// LastLook is what the look at the slot saw that PostgreSQL answered last.
type LastLook struct {
	At               time.Time `json:"at"`
	LagBytes         *int64    `json:"lag_bytes"`
	RetainedWALBytes int64     `json:"retained_wal_bytes"`
	SafeWALBytes     *int64    `json:"safe_wal_bytes"` // nil: the server had no limit
}

// heardWithin is how lately the stream has to have heard of the server, which answers each second.
const heardWithin = 5 * time.Second

// unanswered reports whether PostgreSQL does not answer: the last look failed, or the next one is
// overdue. Then what was seen is old, and anything may have become of it. Call it with the lock held.
func (b *Monitor) unanswered(now time.Time) bool {
	return b.silent || b.of.LookEvery > 0 && !b.looked.IsZero() && now.Sub(b.looked) > 2*b.of.LookEvery
}

// forget takes what is old out of a status, and keeps what there was, with its age. What the stream
// itself hears stays. Call it with the lock held.
func (b *Monitor) forget(st *Status) {
	if !b.looked.IsZero() {
		st.LastLook = &LastLook{At: b.looked, LagBytes: st.lagBytes(), RetainedWALBytes: st.RetainedWALBytes}
		if st.SlotState != nil {
			st.LastLook.SafeWALBytes = st.SlotState.SafeWALBytes
		}
	}
	st.SlotState, st.RetainedWALBytes = nil, 0
	hears := false
	if b.session != nil {
		silent := b.session.Silent()
		hears = silent > 0 && silent < heardWithin
	}
	if !hears {
		st.LSN.Server, st.SourceConnected = 0, false
	}
}

// lagBytes is the distance of two positions that are known.
func (s *Status) lagBytes() *int64 {
	if s.LSN.Server == 0 || s.LSN.Confirmed == 0 {
		return nil
	}
	behind := max(0, int64(s.LSN.Server)-int64(s.LSN.Confirmed))
	return &behind
}

// text names what there was, and how long ago.
func (l *LastLook) text(now time.Time) string {
	text := "; " + l.ago(now) + " ago: "
	if l.LagBytes != nil {
		text += wording.Bytes(*l.LagBytes) + ", "
	}
	text += "WAL retained " + wording.Bytes(l.RetainedWALBytes)
	if l.SafeWALBytes != nil {
		text += fmt.Sprintf(", lost after another %s", wording.Bytes(max(0, *l.SafeWALBytes)))
	}
	return text
}

func (l *LastLook) ago(now time.Time) string { return now.Sub(l.At).Round(time.Second).String() }
