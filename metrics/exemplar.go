package metrics

import (
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
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
			if trace, sampled := traceOf(string(h.Value)); sampled {
				return r.Row.Txn, trace
			}
		}
	}
	return nil, ""
}

// traceOf reads a traceparent: the trace that it names, and whether that is recorded.
func traceOf(parent string) (trace string, sampled bool) {
	// 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01; later versions may go on after it
	if len(parent) < 55 || len(parent) > 55 && (parent[55] != '-' || parent[:2] == "00") || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return "", false
	}
	trace, span, flags := parent[3:35], parent[36:52], parent[53:55]
	for _, part := range []string{parent[:2], trace, span, flags} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return "", false
		}
	}
	if strings.Trim(trace, "0") == "" || strings.Trim(span, "0") == "" || parent[:2] == "ff" {
		return "", false
	}
	return trace, strings.Contains("13579bdf", flags[1:])
}
