package stage

import (
	"time"

	"github.com/cdc-relay/cdc-relay/test/parity/golden"
)

// runID is a header with a random number of the connector's start.
const runID = "__debezium.context.runId"

// slack is how far the clocks of worker and broker may be from ours.
const slack = 5 * time.Second

// markVolatile names in each record what the next capture will have otherwise:
// readings of the clock between began and ended, what was drawn at random, and
// what the case says.
func markVolatile(c *golden.Case, records []golden.Record, began, ended time.Time) {
	for i := range records {
		r := &records[i]
		r.Volatile = []string{}
		at := time.UnixMilli(r.Timestamp)
		if at.After(began.Add(-slack)) && at.Before(ended.Add(slack)) {
			r.Volatile = append(r.Volatile, "timestamp")
		}
		if r.Key.Null && r.Partitions > 1 {
			r.Volatile = append(r.Volatile, "partition")
		}
		if c.Hints.VolatileValues.Matches(r.Topic) {
			r.Volatile = append(r.Volatile, "value")
		}
		if c.Hints.VolatileKeys.Matches(r.Topic) {
			r.Volatile = append(r.Volatile, "key")
		}
		for _, h := range r.Headers {
			if h.Name == runID {
				r.Volatile = append(r.Volatile, "headers."+runID)
			}
		}
	}
}
