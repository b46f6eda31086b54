package deadletter

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/cdc-relay/cdc-relay/router/record"
)

// digest is a hash of all that Kafka stores of a record.
type digest [sha256.Size]byte

// absent is the length of what is not there, as in Kafka's protocol.
const absent = -1

// Digest distinguishes tasks: which letters they have, with what in them, in which order.
func Digest(tasks []Task) [sha256.Size]byte {
	h := sha256.New()
	for i := range tasks {
		fmt.Fprintf(h, "task %d %d\n", len(tasks[i].Entries), tasks[i].Left)
		for _, e := range tasks[i].Entries {
			fmt.Fprintf(h, "%d/%d %x %q %x %t\n", e.Partition, e.Offset, e.Group, e.Source, e.sum, e.Matched)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func digestOf(r *record.Record) digest {
	h := sha256.New()
	var size [8]byte
	number := func(n int64) {
		binary.BigEndian.PutUint64(size[:], uint64(n))
		h.Write(size[:])
	}
	part := func(bytes []byte) {
		n := int64(len(bytes))
		if bytes == nil {
			n = absent
		}
		number(n)
		h.Write(bytes)
	}
	part([]byte(r.Topic))
	number(int64(r.Partition))
	number(r.Timestamp.UnixNano())
	part(r.Key)
	part(r.Value)
	number(int64(len(r.Headers)))
	for _, header := range r.Headers {
		part([]byte(header.Key))
		part(header.Value)
	}
	return digest(h.Sum(nil))
}
