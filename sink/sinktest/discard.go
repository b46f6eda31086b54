package sinktest

import (
	"context"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Discard acknowledges every record before Send returns and keeps nothing. The
// zero value is ready.
type Discard struct {
	records atomic.Int64
	bytes   atomic.Int64
	closed  atomic.Bool
}

var _ sink.Sink = (*Discard)(nil)

// Send acknowledges the records.
func (d *Discard) Send(_ context.Context, records []record.Record, done func(error)) {
	if d.closed.Load() {
		done(failAll(records, sink.ErrClosed, "closed"))
		return
	}
	size := 0
	for i := range records {
		size += len(records[i].Key) + len(records[i].Value)
	}
	d.records.Add(int64(len(records)))
	d.bytes.Add(int64(size))
	done(nil)
}

// Records is how many records were acknowledged, Bytes the length of their keys
// and values.
func (d *Discard) Records() int64 { return d.records.Load() }

// Bytes is the length of all keys and values that were acknowledged.
func (d *Discard) Bytes() int64 { return d.bytes.Load() }

// Resume does nothing: Discard never halts.
func (d *Discard) Resume(context.Context) {}

// Halt does nothing: every record is acknowledged before Send returns.
func (d *Discard) Halt() {}

// Overhead is that of a sink with a client.
func (d *Discard) Overhead(n int) int { return n * overhead }

// Reachable is always nil.
func (d *Discard) Reachable() error { return nil }

// Ready is always nil.
func (d *Discard) Ready(context.Context) error { return nil }

// Close makes later records fail.
func (d *Discard) Close(context.Context) error {
	d.closed.Store(true)
	return nil
}

// failAll is the outcome of a Send of which nothing is durable. A Send without
// records has nothing that could fail.
func failAll(records []record.Record, err error, reason string) error {
	if len(records) == 0 {
		return nil
	}
	failed := &sink.FailedError{Failures: make([]sink.Failure, len(records))}
	for i := range failed.Failures {
		failed.Failures[i] = sink.Failure{Index: i, Class: sink.Retry, Reason: reason, Err: err}
	}
	return failed
}
