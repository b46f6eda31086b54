package backfill

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/kafkatx"
)

// idempotent is the sink of a backfill without transactions.
type idempotent struct {
	*kafka.Sink
	w *work
}

// Send gives the records the position of the slot's beginning.
func (i *idempotent) Send(ctx context.Context, records []record.Record, done func(error)) {
	i.w.stamp(records)
	i.Sink.Send(ctx, records, done)
}

// stamp gives records the header that distinguishes them from those of the stream.
func (w *work) stamp(records []record.Record) {
	w.placeBeforeSlot(records)
	if w.replay != nil {
		w.replay.stamp(records)
	}
}

// placeBeforeSlot puts where the slot begins into the position headers, instead of the row's
// number. So every old row lies before the stream's rows, and one that a later call reads never
// before what an earlier call sent. Online that is where the stream begins that comes after the bucket.
func (w *work) placeBeforeSlot(records []record.Record) {
	at := w.progress.Copied()
	for i := range records {
		record.PlaceAt(&records[i], at)
	}
}

// transactional has the progress be what a Kafka transaction commits beside its rows. The relay
// above knows positions that are numbers of rows; below, the topic has the places that they stand
// for.
type transactional struct {
	*kafkatx.Sink
	w *work
}

// Open shuts out every other holder, and continues from the place that was committed last.
func (t *transactional) Open(ctx context.Context, h sink.Holder) ([]byte, error) {
	h.Key = t.w.key(t.w.progress)
	value, err := t.Sink.Open(ctx, h)
	if err != nil {
		return nil, err
	}
	blocked := func(err error) ([]byte, error) {
		return nil, &sink.Error{Class: sink.Blocked, Reason: fault.ReasonBackfillProgress, Err: fmt.Errorf("topic %q: %w", t.w.settings.CheckpointTopic, err)}
	}
	if value == nil {
		return blocked(errors.New("the progress of the backfill is gone; run the command again"))
	}
	p, err := progress.Parse(value)
	if err != nil {
		return blocked(err)
	}
	if p.Run != t.w.progress.Run {
		return blocked(errors.New("another backfill has written its progress; run the command again"))
	}
	t.w.track.Begin(p.Place)
	rec := stored.Position{
		System: p.System, Timeline: t.w.progress.Timeline, Slot: p.Slot, Publication: t.w.settings.Replication.Publication, Relay: t.w.settings.Version,
		End: progress.Position(p.Rows),
	}
	return rec.Encode(), nil
}

// Send gives the records the position of the slot's beginning.
func (t *transactional) Send(ctx context.Context, records []record.Record, done func(error)) {
	t.w.stamp(records)
	t.Sink.Send(ctx, records, done)
}

// SetPosition puts the place in the position's stead.
func (t *transactional) SetPosition(m sink.Position) {
	rec, err := stored.ParsePosition(m.Value)
	if err == nil {
		place, ok := t.w.track.At(progress.RowsBefore(rec.End))
		if ok {
			m.Value = t.w.progress.At(place).Encode()
			t.Sink.SetPosition(m)
			return
		}
		err = fmt.Errorf("row %d is not in flight", progress.RowsBefore(rec.End))
	}
	// Without a position nothing is committed, and the session ends.
	t.w.fail(fmt.Errorf("write the progress of the backfill: %w", err))
}
