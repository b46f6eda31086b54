package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/wording"
)

// lettersGone logs that the dead-letter topic was made anew while keys were parked. Retention and
// marks find it out by themselves.
func (r *Relay) lettersGone(keys int) {
	r.log.Warn().Int("keys", keys).Str("topic", r.cfg.DeadLetterTopic).
		Msg("the dead-letter topic was made anew while keys were parked: the dead letters of these keys are lost, and later rows of these keys are sent. Write the lost events again, or send the rows again with `cdc-relay replay`")
}

// showLettersLost has a status say which dead letters are lost with a dead-letter topic that is gone.
func (r *Relay) showLettersLost(st *status.Status) {
	if st.Reason != fault.ReasonUnknownTopic || r.cfg.OnReject != DeadLetterOnReject {
		return
	}
	if o := st.Obstacle; o != nil && o.Row != nil && o.Row.Topic != r.cfg.DeadLetterTopic {
		return
	}
	switch {
	case st.ParkedKeys > 0:
		st.LettersLost = "the dead letters of " + wording.Count(st.ParkedKeys, "key") + " that waited in it are lost"
	case st.DeadLetters > 0:
		st.LettersLost = "of " + wording.Count(st.DeadLetters, "dead letter") + " that this process wrote to it, those that waited are lost"
	default:
		return
	}
	st.Message += "; " + st.LettersLost
	st.Headline = status.Headline(st, time.Now())
}
