package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/relay/rejected"
)

// logNotices logs what the router changed in rows that it did not refuse, by table and column, and
// rejected rows whose log line was held back (rejected.Log).
func (r *Relay) logNotices(now time.Time) {
	r.shared.Rejected.Flush(now, false)
	if now.Sub(r.lastNotices) < rejected.Every {
		return
	}
	list := r.parts.Router.Notices()
	if len(list) > 0 {
		r.lastNotices = now
	}
	rejected.LogNotices(r.log, list)
}
