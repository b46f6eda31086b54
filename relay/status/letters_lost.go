package status

import (
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/wording"
)

// LoseLetters says of a relay that is blocked because its dead-letter topic is gone which letters are
// lost with it, as far as the relay knows. keys is how many parked keys had a letter in it.
func (s *Status) LoseLetters(topic string, keys int, now time.Time) {
	if s.Reason != fault.ReasonUnknownTopic {
		return
	}
	if o := s.Obstacle; o != nil && o.Row != nil {
		if o.Row.Topic != topic {
			return
		}
	} else if !strings.Contains(s.Message, strconv.Quote(topic)) { // a topic of heartbeats, for instance
		return
	}
	switch {
	case keys > 0:
		s.LettersLost = "the dead letters of " + wording.Count(keys, "key") + " that waited in it are lost"
	case s.DeadLetters > 0:
		s.LettersLost = "of " + wording.Count(s.DeadLetters, "dead letter") + " that this process wrote to it, those that waited are lost"
	default:
		return
	}
	s.Message += "; " + s.LettersLost
	s.Headline = Headline(s, now)
}
