package sink_test

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/sink"
)

// An error ends with the next step, which a status page shows beside the cause.
func ExampleTold() {
	err := sink.Advise(errors.New("topic orders does not exist"), "create it, or set kafka.create_topics")
	seen, next := sink.Told(fmt.Errorf("deliver records: %w", err))
	fmt.Println(seen)
	fmt.Println(next)
	// Output:
	// deliver records: topic orders does not exist
	// create it, or set kafka.create_topics
}
