package metrics

import (
	"encoding/hex"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/tracing"
)

// exemplarEvery bounds what exemplars cost: a scrape takes the last one of each bucket anyway.
const exemplarEvery = 100 * time.Millisecond

// exemplar finds the oldest transaction of a batch that the service which wrote it had sampled, and
// its trace; nil: there is none, or there was one a moment ago.
func (m *Metrics) exemplar(now time.Time, records []record.Record) (of *wal.Txn, trace string) {
	last := m.exemplified.Load()
	if now.UnixNano()-last < int64(exemplarEvery) || !m.exemplified.CompareAndSwap(last, now.UnixNano()) {
		return nil, ""
	}
	for i := range records {
		r := &records[i]
		if r.Row == nil {
			continue
		}
		for _, h := range r.Headers {
			if h.Key != "traceparent" && h.Key != "ce_traceparent" {
				continue
			}
			if c, ok := tracing.ParseParent(h.Value); ok && c.Sampled() {
				return r.Row.Txn, hex.EncodeToString(c.Trace[:])
			}
		}
	}
	return nil, ""
}
