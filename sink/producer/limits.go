package producer

import (
	"fmt"
	"math"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
)

// The client counts nanoseconds since 1970 in 64 bits. A time outside of that
// would reach the broker as another one, without a word.
var (
	earliest = time.Unix(0, math.MinInt64)
	latest   = time.Unix(0, math.MaxInt64)
)

// timeError is a record whose timestamp the client cannot express.
type timeError struct{ millis int64 }

func (e *timeError) Error() string {
	return fmt.Sprintf("the record's timestamp, %d ms since 1970, is not between the years 1677 and 2262; correct the column that it comes from", e.millis)
}

// WrappedBy rejects the record.
func (e *timeError) WrappedBy(found error) *sink.Error {
	return &sink.Error{Class: sink.Rejected, Reason: fault.ReasonInvalidTimestamp, Err: found}
}

// sizeError is a record that is over the limit of the configuration.
type sizeError struct{ size, limit int }

func (e *sizeError) Error() string {
	return fmt.Sprintf("record takes %d bytes in a batch, the limit is %d; raise kafka.max_message_bytes and restart the relay, and raise max.message.bytes of the topic, or store less in the row", e.size, e.limit)
}

// WrappedBy rejects the record.
func (e *sizeError) WrappedBy(found error) *sink.Error {
	return &sink.Error{Class: sink.Rejected, Reason: fault.ReasonRecordTooLarge, Err: found}
}

// Limit is the one that the record is over.
func (e *sizeError) Limit() (bytes int, key string) { return e.limit, "kafka.max_message_bytes" }

// Check is the size of a record in a batch of its own, or why the client cannot send it: it
// would change the record, or refuse it in another order. The zero time stands for the
// time of sending.
func (c *Config) Check(r *record.Record) (size int, err error) {
	t := r.Timestamp
	if !t.IsZero() && (t.Before(earliest) || t.After(latest)) {
		return 0, &timeError{t.UnixMilli()}
	}
	if size = broker.BatchSize(r); size > c.MaxMessageBytes {
		return 0, &sizeError{size, c.MaxMessageBytes}
	}
	return size, nil
}
