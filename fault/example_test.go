package fault_test

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
)

// What happens next follows from the kind, and one line has all that a person needs.
func ExampleError() {
	err := error(&fault.Error{
		Kind: fault.KindRefused, Op: "start replication", Subject: `slot "orders"`, LSN: 0x130,
		Err: errors.New("permission denied"), Hint: "grant REPLICATION to the role of postgres.url",
	})
	fmt.Println(err)
	if failure, ok := errors.AsType[*fault.Error](err); ok {
		fmt.Println(failure.Kind)
	}
	// Output:
	// start replication slot "orders": permission denied (LSN 0/130); grant REPLICATION to the role of postgres.url
	// refused
}
