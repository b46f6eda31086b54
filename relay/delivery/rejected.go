package delivery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

// A row can never be delivered if the router refuses it, or if the brokers reject its record
// when the record is sent alone. relay.on_reject decides:
//
//   - stop: the relay blocks at the row (atLeastOnce.refusedByRouter and waitAtRecord,
//     exactlyOnce.endAtRow), and the position stays before it.
//   - dead_letter: a dead letter takes the place of the record in the batch. It is sent,
//     acknowledged and confirmed like any other record, in the order of the stream.
//   - skip: the row is counted and logged, and confirmed without a record.

// setAside skips a row that the router refuses, or replaces it by a dead letter, or returns why
// the relay blocks at it. A row of a table that changed is not set aside: every later row would
// be refused too.
func (d *Delivery) setAside(f *InFlight, row *wal.Row, rejection error) error {
	refused, ok := errors.AsType[*record.RowError](rejection)
	if !ok || d.shared.cfg.OnReject == StopOnReject || refused.Reason == fault.ReasonSchema || errors.Is(rejection, record.ErrBinary) {
		return rejection
	}
	if d.shared.cfg.OnReject == DeadLetterOnReject {
		rec, missing := d.shared.router.Salvage(f.buf, row)
		missing = deadletter.KeepBody(&rec, missing)
		if d.overtakes(f, &rec) {
			return errOvertakes
		}
		if err := d.park(&rec); err != nil {
			return fmt.Errorf("%w; the row: %w", err, rejection)
		}
		f.buf.Records = append(f.buf.Records, d.letter(&rec, refused.Reason, rejection, missing...))
		f.letterReasons = append(f.letterReasons, refused.Reason)
	}
	if d.shared.cfg.OnReject == SkipOnReject && d.shared.router.Traces() {
		rec, _ := d.shared.router.Salvage(f.buf, row)
		d.shared.traces.Skipped(f.buf.Spans, &rec, refused.Reason)
	}
	d.shared.Rejected.Reject(refused.Reason, row.Relation.Qualified(), row.Place(), rejection)
	d.shared.Rejected.Aside(refused.Reason, row, rejection)
	return nil
}

// awaitSchema holds the row that is routed next back until its schema is known. What lies before it
// was sent; once a look-up failed it is also made durable and confirmed.
func (d *Delivery) awaitSchema(ctx, deliveryCtx context.Context, f *InFlight, need *schemas.Need) error {
	row := &f.batch.Rows[f.routed]
	settle := func() error {
		d.MakeRoom()
		if err := d.settle(ctx, deliveryCtx); err != nil {
			return err
		}
		f.confirmBefore(f.routed)
		return nil
	}
	return d.shared.schemas.Await(ctx, deliveryCtx, d.session, need, settle, func(err error) error { return rejected.NotDelivered("", err, row) })
}

// errOvertakes stops the routing at a row whose dead letter would overtake earlier records of
// its key.
var errOvertakes = errors.New("earlier rows of its key are not acknowledged yet")

// overtakes reports whether the letter of a parked key may be durable before earlier records of
// the key are. A redrive at that time would send it ahead of them. Not covered, with position
// headers: the rows of one transaction, which is sent as a whole at its end.
func (d *Delivery) overtakes(f *InFlight, letter *record.Record) bool {
	if d.Rules().Ordered || !d.shared.Letters.Parks() || letter.Topic == "" || letter.Key == nil || f.waitedFor == f.routed {
		return false
	}
	return f.waitedFor < 0 && (d.sends.outstanding.Load() > 0 || d.Failed()) ||
		slices.ContainsFunc(f.buf.Records[f.ackedUpTo:], func(r record.Record) bool {
			return r.Topic == letter.Topic && bytes.Equal(r.Key, letter.Key)
		})
}

// letter makes the dead letter of a record.
func (d *Delivery) letter(rec *record.Record, reason string, cause error, missing ...string) record.Record {
	return d.shared.Letters.Wrap(d.start.Origin, rec, reason, cause, missing...)
}

// park parks the record's key: later rows of the key follow the dead letter.
func (d *Delivery) park(rec *record.Record) error { return d.shared.Letters.Park(d.start.Origin, rec) }

// DivertParked replaces the records of a routed batch whose keys are parked by dead letters: before the
// window admits it, because that changes its size.
func (d *Delivery) DivertParked(f *InFlight) { d.divertParked(f, f.buf.Records) }

// divertParked replaces the records of parked keys by dead letters. It runs before a
// record is first handed to the sink, and when a key was parked before it is durable.
func (d *Delivery) divertParked(f *InFlight, records []record.Record) {
	for range d.shared.Letters.Divert(d.start.Origin, records) {
		f.letterReasons = append(f.letterReasons, deadletter.CauseParked)
	}
}

// divertQueued is divertParked for records that wait to be sent again.
func (d *Delivery) divertQueued(queue []undelivered) {
	if d.shared.Letters.Keys() == 0 {
		return
	}
	for _, u := range queue {
		d.divertParked(u.send.inFlight, u.send.records[u.index:u.index+1])
	}
}

// withoutSkipped are the records of a batch that were sent. It reuses their memory.
func (f *InFlight) withoutSkipped() []record.Record {
	if !f.skipped {
		return f.buf.Records
	}
	kept := f.buf.Records[:0]
	for _, rec := range f.buf.Records {
		if rec.Topic != "" {
			kept = append(kept, rec)
		}
	}
	return kept
}
