package kafka

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Overhead is what n records cost beside their own bytes from Send until done.
func (k *Sink) Overhead(n int) int {
	// The client wraps each record with its promise and its place in the batch.
	const client = 64
	const record = int(unsafe.Sizeof(kgo.Record{})+unsafe.Sizeof(recordContext{})) + client
	return n * record
}
