package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/relay/rejected"
)

// logNotices logs, by table and column, rows that were changed on their way although none of them
// was refused.
func (r *Relay) logNotices(now time.Time) {
	r.delivery.Rejected.Flush(now, false)
	if now.Sub(r.lastNotices) < rejected.Every {
		return
	}
	list := r.parts.Router.Notices()
	if len(list) > 0 {
		r.lastNotices = now
	}
	rejected.LogNotices(r.log, list)
}
