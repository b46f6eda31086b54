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
	if err := t.endSession(ctx); err != nil {
		return nil, err
	}
	c := &bisection{sink: t, id: id, rejected: make(map[int]sink.Failure)}
	defer c.close()
	if err := c.bisect(ctx, records, 0); err != nil {
		return nil, err
	}
	if len(c.rejected) == 0 {
		t.shrinkBatches()
	}
	return c.rejected, nil
}

// shrinkBatches has less produced at a time. No record is refused alone, so it is the size
// of what they make together.
//
// Once may be chance: somebody raised the limit in between.
func (t *Sink) shrinkBatches() {
	if t.refusedTogether++; t.refusedTogether < 2 {
		return
	}
	batch := t.batchBytes.Load()
	if batch == 0 {
		batch = int64(t.cfg.MaxMessageBytes)
	}
	t.batchBytes.Store(max(1, batch/4))
	t.log.Warn().Int64("bytes", t.batchBytes.Load()).
		Msg("the brokers reject records in one batch that they accept one at a time; continuing with smaller batches. Lower kafka.max_message_bytes to max.message.bytes of the topics")
}

// bisection finds the records that brokers refuse, in transactions that are aborted.
type bisection struct {
	sink     *Sink
	id       string
	client   *client
	rejected map[int]sink.Failure
}

// open has a client with an epoch of its own.
func (c *bisection) open(ctx context.Context) error {
	if c.client != nil {
		return nil
	}
	if ctx.Err() != nil { // nobody is fenced for a search that is over
		return c.sink.opening(ctx, c.id, context.Cause(ctx))
	}
	client, err := c.sink.connect(c.id)
	if err != nil {
		return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonKafkaError, Err: err}
	}
	c.client = client
	if err := c.sink.fence(ctx, client); err != nil {
		return c.sink.opening(ctx, c.id, err)
	}
	return nil
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
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	if err := c.client.BeginTransaction(); err != nil {
		return nil, c.sink.opening(ctx, c.id, err)
	}
	b, answers := newTransactionBatch(records, nil), newOutcomes()
	answers.produce(ctx, c.sink, c.client.Client, b)
	if err := c.client.Flush(ctx); err != nil {
		c.close()
	} else if err := c.client.EndTransaction(ctx, kgo.TryAbort); err != nil {
		c.close() // the next epoch aborts it
	}
	answers.wg.Wait()
	failed := answers.failures()
	defer b.free()
	var found *sink.Failure
	for i := range records {
		err := failed[&(*b.kafka)[i]]
		if err == nil || errors.Is(err, sink.ErrHalted) {
			continue
		}
		if f := c.sink.failure(records[i].Topic, err, 0); found == nil || f.Class == sink.Rejected {
			found = &f
		}
	}
	if found == nil && ctx.Err() != nil {
		return nil, c.sink.opening(ctx, c.id, context.Cause(ctx))
	}
	return found, nil
}
