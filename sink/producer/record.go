package producer

import (
	"context"
	"time"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/twmb/franz-go/pkg/kgo"
)

// FillRecord makes the client's record of ours. The zero time stands for now. The context
// says which partition it goes to, if it is an ExplicitPartition.
func FillRecord(ctx context.Context, to *kgo.Record, from *record.Record, now time.Time) {
	*to = kgo.Record{
		Topic: from.Topic, Key: from.Key, Value: from.Value, Headers: headers(from.Headers),
		Timestamp: from.Timestamp, Partition: from.Partition, Context: ctx,
	}
	if to.Timestamp.IsZero() {
		to.Timestamp = now
	}
}

// The client's header is ours by another name: this compiles only as long as the
// two have the same fields in the same order.
var _ = kgo.RecordHeader(record.Header{})

// headers gives the record's own headers to the client, which only reads them.
// Copies would cost a tenth of what a row takes in memory.
func headers(own []record.Header) []kgo.RecordHeader {
	return unsafe.Slice((*kgo.RecordHeader)(unsafe.Pointer(unsafe.SliceData(own))), len(own))
}
