package kafka

import (
	"unsafe"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ClientBytes is what records cost beside their own bytes from Send until done, in
// bytes: what the Kafka sink and its client make of each. A caller that bounds its
// memory counts it.
func ClientBytes(records []record.Record) int {
	// The client wraps each record with its promise and its place in the batch.
	const client = 64
	const record = int(unsafe.Sizeof(kgo.Record{})+unsafe.Sizeof(recordContext{})) + client
	return len(records) * record
}
