package advice_test

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/advice"
)

// An error ends with the next step, which a status page shows beside the cause.
func ExampleSplit() {
	err := advice.Give(errors.New("topic orders does not exist"), "create it, or set kafka.create_topics")
	seen, next := advice.Split(fmt.Errorf("deliver records: %w", err))
	fmt.Println(seen)
	fmt.Println(next)
	// Output:
	// deliver records: topic orders does not exist
	// create it, or set kafka.create_topics
}
