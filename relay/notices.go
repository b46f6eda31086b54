package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/relay/rejected"
)

// logNotices logs what the router changed in rows that it did not refuse, by table and column, and
// rejected rows whose log line was held back (rejected.Log).
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

// lettersGone logs that the dead-letter topic was replaced while keys were parked. Retention and
// marks find that out by themselves.
func (r *Relay) lettersGone(keys int) {
	r.log.Warn().Int("keys", keys).Str("topic", r.cfg.DeadLetterTopic).
		Msg("the dead-letter topic was deleted and created again while keys were parked: the dead letters of these keys are lost, and later rows of these keys are sent. Send the rows again with `cdc-relay replay`")
}
