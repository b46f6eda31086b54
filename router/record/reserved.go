package record

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
)

// Reserved names the topics that hold records of relays, each with what they are. No row's record
// may go there: whoever writes a position or a dead letter of another relay decides what that relay
// delivers.
type Reserved []ReservedTopic

// ReservedTopic is a topic, and what its records are.
type ReservedTopic struct{ Name, For string }

// Check refuses a reserved topic.
func (r Reserved) Check(topic string) error {
	for i := range r {
		if r[i].Name == topic {
			return fmt.Errorf("its topic is %s, which is reserved for %s; choose another topic for the rows, or for those", topic, r[i].For)
		}
	}
	return nil
}

// Reject is the rejection of a row one of whose records has a reserved topic.
func (r Reserved) Reject(records []Record) error {
	for i := range records {
		if err := r.Check(records[i].Topic); err != nil {
			return RejectFor(fault.ReasonRoute, "", err)
		}
	}
	return nil
}
