package producer

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ContextBytes is what Overhead counts for the context of a record.
const ContextBytes = 56

// Overhead is what n records cost beside their own bytes from Send until done.
func (b *Brokers) Overhead(n int) int {
	// The client wraps each record with its promise and its place in the batch.
	const wrapped = 64
	return n * (int(unsafe.Sizeof(kgo.Record{})) + ContextBytes + wrapped)
}
