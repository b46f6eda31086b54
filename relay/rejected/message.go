package rejected

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// OnlyCopy adds to the error of a dead letter that is too large why the relay blocks at it where
// it is of a logical message: a shorter letter would be the end of what is left out.
func OnlyCopy(letter *record.Record, reason string, err error) error {
	if reason != fault.ReasonRecordTooLarge || !letter.Row.Relation.IsMessages() {
		return err
	}
	return fmt.Errorf("%w; it is the dead letter of a logical message, which no table has, so nothing of it is left out: raise max.message.bytes of the dead-letter topic %s, and kafka.max_message_bytes if that is lower", err, letter.Topic)
}
