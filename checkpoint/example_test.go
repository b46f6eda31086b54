package checkpoint_test

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Acknowledgements come in any order. The position moves over those without a gap.
func Example() {
	tracker := checkpoint.New(0x100, 1<<20)
	var tickets []checkpoint.Ticket
	for _, through := range []wal.LSN{0x200, 0x300, 0x400} {
		ticket, ok := tracker.Track(checkpoint.Entry{Rows: 1, Bytes: 100, Through: through})
		if !ok {
			panic("no room") // wait for tracker.Room, then try again
		}
		tickets = append(tickets, ticket)
	}
	for _, i := range []int{1, 0, 2} {
		tickets[i].Done()
		fmt.Printf("entry %d is done: %s\n", i, tracker.Confirmable())
	}
	// Output:
	// entry 1 is done: 0/100
	// entry 0 is done: 0/300
	// entry 2 is done: 0/400
}
