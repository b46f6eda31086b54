package broker

import (
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/twmb/franz-go/pkg/kbin"
)

// DefaultMaxMessageBytes is the largest record and batch unless the configuration says
// otherwise.
const DefaultMaxMessageBytes = 1 << 20

// BatchSize is the size of a batch that holds nothing but the record, as brokers
// hold it against max.message.bytes, before compression.
func BatchSize(r *record.Record) int {
	const overhead = 61 // base offset to record count, magic 2
	n := 1 + 1 + 1      // attributes, timestamp delta, offset delta
	n += fieldSize(len(r.Key)) + fieldSize(len(r.Value)) + kbin.VarintLen(int32(len(r.Headers)))
	for i := range r.Headers {
		n += fieldSize(len(r.Headers[i].Key)) + fieldSize(len(r.Headers[i].Value))
	}
	return overhead + fieldSize(n)
}

func fieldSize(n int) int { return kbin.VarintLen(int32(n)) + n }
