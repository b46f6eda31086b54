package record

import "fmt"

// Reserved names the topics that hold records of relays, each with what they are. No row's record
// may go there: whoever writes a position or a dead letter of another relay decides what that relay
// delivers.
type Reserved map[string]string

// Check refuses a reserved topic.
func (r Reserved) Check(topic string) error {
	if what, ok := r[topic]; ok {
		return fmt.Errorf("its topic is %s, which is reserved for %s; choose another topic for the rows, or for those", topic, what)
	}
	return nil
}
