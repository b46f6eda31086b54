package sink

import (
	"fmt"
	"math"
	"time"

	"github.com/cdc-relay/cdc-relay/router"
)

// The client counts nanoseconds since 1970 in 64 bits. A time outside of that
// would reach the broker as another one, without a word.
var (
	earliest = time.Unix(0, math.MinInt64)
	latest   = time.Unix(0, math.MaxInt64)
)

// sendable says whether the client keeps a record's timestamp. The zero time
// stands for the time of sending.
func sendable(t time.Time) bool { return t.IsZero() || !t.Before(earliest) && !t.After(latest) }

// timeError is a record whose timestamp the client cannot express.
type timeError struct{ millis int64 }

func (e *timeError) Error() string {
	return fmt.Sprintf("the record's timestamp, %d ms since 1970, is not between the years 1677 and 2262; correct the column that it comes from", e.millis)
}

// Classify rejects the record.
func (e *timeError) Classify(found error) *Error {
	return &Error{Rejected, ReasonInvalidTimestamp, found}
}

// unfit says why newInFlightBatch left a record out.
func (k *Kafka) unfit(r *router.Record) error {
	if !sendable(r.Timestamp) {
		return &timeError{r.Timestamp.UnixMilli()}
	}
	return &sizeError{batchSize(r), k.cfg.MaxMessageBytes}
}
