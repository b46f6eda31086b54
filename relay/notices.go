package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/relay/rejected"
)

// notice logs, by table and column, what was made of rows that an operator would
// want to know of although none of them is refused.
func (r *Relay) notice(now time.Time) {
	r.delivery.Rejected.Flush(now, false)
	if now.Sub(r.noticed) < rejected.Every {
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
