package status

import (
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/wording"
)

// LoseLetters says of a relay that is blocked because its dead-letter topic is gone which letters are
// lost with it, as far as the relay knows.
func (s *Status) LoseLetters(topic string, now time.Time) {
	if s.Reason != fault.ReasonUnknownTopic {
		return
	}
	if o := s.Obstacle; o != nil && o.Row != nil && o.Row.Topic != topic {
		return
	}
	switch {
	case s.ParkedKeys > 0:
		s.LettersLost = "the dead letters of " + wording.Count(s.ParkedKeys, "key") + " that waited in it are lost"
	case s.DeadLetters > 0:
		s.LettersLost = "of " + wording.Count(s.DeadLetters, "dead letter") + " that this process wrote to it, those that waited are lost"
	default:
		return
	}
	s.Message += "; " + s.LettersLost
	s.Headline = Headline(s, now)
}
