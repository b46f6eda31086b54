package kafkatx

import (
	"context"
	"errors"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/twmb/franz-go/pkg/kgo"
)

// FindRejected finds the records that the brokers reject, by index, in transactions that
// are aborted. It ends the producer session. An error means that the search could not be finished.
func (t *Sink) FindRejected(ctx context.Context, id string, records []record.Record) (map[int]sink.Failure, error) {
	t.mu.Lock()
	last := t.session
	t.session = nil
	t.mu.Unlock()
	if last != nil {
		if err := last.end(ctx, sink.ErrHalted); err != nil {
			return nil, &sink.Error{Class: sink.Retry, Reason: fault.ReasonClosed, Err: err}
		}
	}
	c := &bisection{t: t, id: id, rejected: make(map[int]sink.Failure)}
	defer c.close()
	if err := c.bisect(ctx, records, 0); err != nil {
		return nil, err
	}
	if len(c.rejected) == 0 {
		t.smaller()
	}
	return c.rejected, nil
}

// smaller has less produced at a time. No record is refused alone, so it is the size
// of what they make together.
//
// Once may be chance: somebody raised the limit in between.
func (t *Sink) smaller() {
	if t.doubts++; t.doubts < 2 {
		return
	}
	batch := t.batch.Load()
	if batch == 0 {
		batch = int64(t.cfg.MaxMessageBytes)
	}
	t.batch.Store(max(1, batch/4))
	t.log.Warn().Int64("bytes", t.batch.Load()).
		Msg("the brokers reject records in one batch that they accept one at a time; continuing with smaller batches. Lower kafka.max_message_bytes to max.message.bytes of the topics")
}

// bisection finds the records that brokers refuse, in transactions that are aborted.
type bisection struct {
	t        *Sink
	id       string
	client   *client
	rejected map[int]sink.Failure
}

func (c *bisection) close() {
	if c.client != nil {
		c.client.Close()
		c.client = nil
	}
}

// bisect halves what fails until what is left is one record: a record that fails among
// others is not necessarily the one that was refused.
func (c *bisection) bisect(ctx context.Context, records []record.Record, at int) error {
	if len(records) == 0 {
		return nil
	}
	f, err := c.try(ctx, records)
	switch {
	case err != nil:
		return err
	case f == nil:
		return nil
	case len(records) == 1 && f.Class == sink.Rejected:
		c.rejected[at] = *f
		return nil
	case f.Class != sink.Rejected:
		return f.AsError()
	}
	half := len(records) / 2
	if err := c.bisect(ctx, records[:half], at); err != nil {
		return err
	}
	return c.bisect(ctx, records[half:], at+half)
}

// try sends records and takes them back. It returns the failure of one that the
// brokers, or our own limits, refuse.
func (c *bisection) try(ctx context.Context, records []record.Record) (*sink.Failure, error) {
	if c.client == nil {
		if ctx.Err() != nil { // nobody is fenced for a search that is over
			return nil, c.t.opening(ctx, c.id, context.Cause(ctx))
		}
		client, err := c.t.connect(c.id)
		if err != nil {
			return nil, &sink.Error{Class: sink.Blocked, Reason: fault.ReasonKafkaError, Err: err}
		}
		c.client = client
		if err := c.t.fence(ctx, client); err != nil {
			return nil, c.t.opening(ctx, c.id, err)
		}
	}
	if err := c.client.BeginTransaction(); err != nil {
		return nil, c.t.opening(ctx, c.id, err)
	}
	p, answers := newTransactionBatch(records, nil), newOutcomes()
	answers.produce(ctx, c.t, c.client.Client, p)
	if err := c.client.Flush(ctx); err != nil {
		c.close()
	} else if err := c.client.EndTransaction(ctx, kgo.TryAbort); err != nil {
		c.close() // the next epoch aborts it
	}
	answers.wg.Wait()
	failed := answers.failures()
	defer p.free()
	var found *sink.Failure
	for i := range records {
		err := failed[&(*p.kafka)[i]]
		if err == nil || errors.Is(err, sink.ErrHalted) {
			continue
		}
		if f := c.t.failure(records[i].Topic, err, 0); found == nil || f.Class == sink.Rejected {
			found = &f
		}
	}
	if found == nil && ctx.Err() != nil {
		return nil, c.t.opening(ctx, c.id, context.Cause(ctx))
	}
	return found, nil
}
