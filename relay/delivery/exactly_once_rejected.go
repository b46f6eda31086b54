package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/schemas"
	"github.com/cdc-relay/cdc-relay/sink"
)

// With exactly-once a record that the brokers reject is found by bisection: the sink sends the
// records of the failed transaction again in transactions that it aborts. The decision about the
// record is remembered (rejections), and the session that reads the row again puts the dead letter
// in the record's place, or nothing, before it is sent: a source transaction is never divided for it.
//
// What the sink refuses by itself, as too large for kafka.max_message_bytes, is known when its row is
// routed, and replaced then. Nothing is aborted for it.

// searchTimeout bounds the search for rejected records.
const searchTimeout = time.Minute

// errResendChanged ends a session whose rejected records are found: the next session sends their
// transaction again with dead letters in their place, or without them.
var errResendChanged = errors.New("the brokers rejected records; the next session sends their transaction again, with dead letters in their place or without them")

// ErrIsolated ends a session at a transaction that cannot be delivered, whose beginning shares a
// Kafka transaction with rows before it. The next session commits these rows by themselves:
// giving the transaction up moves the slot over everything before it.
var ErrIsolated = errors.New("rows were aborted together with the start of a later transaction that cannot be delivered; they are sent again without it")

// isolate reports whether a transaction has to be isolated, and was not yet. Every send is
// answered by then.
func (x *exactlyOnce) isolate(commit wal.LSN) bool {
	if x.delivery.shared.isolated == commit {
		return false
	}
	d := x.delivery
	d.sends.mu.Lock()
	defer d.sends.mu.Unlock()
	for _, f := range d.sends.failed {
		for i := range f.send.records {
			if f.send.records[i].Row.Place().Commit < commit {
				d.shared.isolated = commit
				return true
			}
		}
	}
	return false
}

// Unreadable reports first what keeps rows before the unreadable row from being committed:
// skipping that row would give them up too. A relay that is fenced here lost the slot to a
// standby: the server releases the slot with such an error.
func (x *exactlyOnce) Unreadable(ctx, within context.Context, unread error) error {
	if x.delivery.sends.outstanding.Load() > 0 {
		return unread
	}
	last, _ := x.delivery.session.Last()
	isolated := x.isolate(last.Commit)
	err := x.Recover(ctx, within)
	own, ok := errors.AsType[*sink.Error](err)
	switch {
	case err == nil || isHeldBack(err):
		x.delivery.isolates = isolated
	case within.Err() == nil && (!ok || own.Reason != fault.ReasonFenced):
		return err
	}
	return unread
}

// decide applies relay.on_reject to the rejected records among the candidates.
func (x *exactlyOnce) decide(candidates []record.Record, found map[int]sink.Failure) error {
	d, shared := x.delivery, x.delivery.shared
	if len(found) == 0 {
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonRefusedTogether, Err: errors.New("the brokers rejected records in one batch that they accept one at a time; trying smaller batches")}
	}
	for i := range candidates {
		f, is := found[i]
		if !is {
			continue
		}
		rec := &candidates[i]
		row, id := rec.Row, recordIDOf(rec)
		cause := rejected.NotDelivered(f.Reason, f.Err, row)
		switch {
		case shared.cfg.OnReject == StopOnReject:
			d.shared.Rejected.Reject(f.Reason, cause.Table, id.row, cause)
			cause.Err = d.shared.hints.DeadLetter(f.Reason, cause.Err) // what lies before it was aborted with it
			return x.endAtRow(row, rec, f.Reason, cause)
		// No row has that topic (router.Config.Reserved), so this is a letter.
		case shared.cfg.OnReject == DeadLetterOnReject && rec.Topic == shared.cfg.DeadLetterTopic:
			letter := *rec
			if !deadletter.Strip(&letter) {
				cause.Err = rejected.OnlyCopy(rec, f.Reason, cause.Err)
				return x.endAtRow(row, rec, f.Reason, cause)
			}
			shared.rejections.strips[id]++
		default:
			d.shared.Rejected.Aside(f.Reason, row, cause)
			shared.rejections.records[id] = rejectedRecord{reason: f.Reason, err: cause}
		}
	}
	return errResendChanged
}

// recordIDOf names a record.
func recordIDOf(rec *record.Record) recordID {
	return recordID{rec.Row.Place(), int(rec.Nth)}
}

// endAtRow ends the session at a row. The next one commits everything before the row's
// transaction.
func (x *exactlyOnce) endAtRow(row *wal.Row, rec *record.Record, reason string, cause error) error {
	x.delivery.shared.monitor.BlockedAt(row, rec, x.delivery.Lineage(), reason, cause)
	return &rejected.BlockedAtRowError{Reason: reason, Err: cause}
}

func (x *exactlyOnce) replace(f *InFlight, n int, row *wal.Row) error {
	d, kept := x.delivery, n
	for i := n; i < len(f.buf.Records); i++ {
		rec := &f.buf.Records[i]
		if c, ok := x.rejection(rec); ok {
			d.shared.Rejected.Reject(c.reason, row.Relation.Qualified(), row.Place(), c.err)
			if d.shared.cfg.OnReject == SkipOnReject {
				d.shared.traces.Skipped(f.buf.Spans, rec, c.reason)
				continue
			}
			if err := d.park(rec); err != nil {
				return fmt.Errorf("%w; the row: %w", err, c.err)
			}
			*rec = d.letter(rec, c.reason, c.err)
			f.letterReasons = append(f.letterReasons, c.reason)
		}
		if kept != i {
			f.buf.Records[kept] = *rec
		}
		kept++
	}
	f.buf.Records = f.buf.Records[:kept]
	return nil
}

// rejection is why a record is replaced before it is sent: the brokers rejected it in an earlier
// session, or the sink refuses it. A refusal by the sink is not remembered: it costs no Kafka
// transaction, and every session that reads the row finds it again.
func (x *exactlyOnce) rejection(rec *record.Record) (rejectedRecord, bool) {
	shared := x.delivery.shared
	if len(shared.rejections.records) != 0 {
		if c, ok := shared.rejections.records[recordIDOf(rec)]; ok {
			return c, true
		}
	}
	if shared.cfg.OnReject == StopOnReject { // Recover blocks at the row, once everything before it is committed
		return rejectedRecord{}, false
	}
	if shared.router.PositionHeaders() && !x.delivery.fillPosition(rec) {
		record.PlaceAt(rec, 1) // no position is shorter: what is too large so is too large with any
	}
	failure := x.refuses(rec)
	if failure == nil {
		return rejectedRecord{}, false
	}
	cause := rejected.NotDelivered(failure.Reason, failure.Err, rec.Row)
	shared.Rejected.Aside(failure.Reason, rec.Row, cause)
	return rejectedRecord{reason: failure.Reason, err: cause}, true
}

// refuses is the failure of a record that the sink is known to refuse, or nil.
func (x *exactlyOnce) refuses(rec *record.Record) *sink.Failure {
	if x.refuser == nil {
		return nil
	}
	if f := x.refuser.Refuses(rec); f != nil && f.Class == sink.Rejected {
		return f
	}
	return nil
}

// sendRecords gives the sink records, after parked keys and shortened letters are applied.
func (x *exactlyOnce) sendRecords(f *InFlight, records []record.Record) {
	x.delivery.divertParked(f, records)
	x.shorten(records)
	x.delivery.sendRecords(f, records)
}

// shorten strips each letter once for each time that the brokers rejected it, and until the sink
// takes it.
func (x *exactlyOnce) shorten(records []record.Record) {
	strips := x.delivery.shared.rejections.strips
	if x.delivery.shared.cfg.OnReject != DeadLetterOnReject || len(strips) == 0 && x.refuser == nil {
		return
	}
	for i := range records {
		letter := &records[i]
		if letter.Topic != x.delivery.shared.cfg.DeadLetterTopic {
			continue
		}
		for range strips[recordIDOf(letter)] {
			deadletter.Strip(letter)
		}
		for x.refuses(letter) != nil && deadletter.Strip(letter) {
		}
	}
}

// refusedByRouter ends the session at a row that the router refuses. Everything that commits before
// the row's transaction is committed first.
func (x *exactlyOnce) refusedByRouter(ctx, deliveryCtx context.Context, f *InFlight, refusal error) error {
	d := x.delivery
	for need, ok := errors.AsType[*schemas.Need](refusal); ok; need, ok = errors.AsType[*schemas.Need](refusal) {
		x.sendEarlierTransactions(f)
		if err := d.awaitSchema(ctx, deliveryCtx, f, need); err != nil {
			return err
		}
		if refusal = d.Route(f); refusal == nil {
			d.shared.monitor.ClearBlocked()
			x.send(f)
			return nil
		}
	}
	row := &f.batch.Rows[f.routed]
	reason := rejected.ReasonOf(refusal)
	x.sendEarlierTransactions(f)
	x.Finish()
	if err := d.quiesce(deliveryCtx); err != nil {
		return err
	}
	isolated := x.isolate(row.Place().Commit)
	if err := x.Recover(ctx, deliveryCtx); err != nil && !isHeldBack(err) {
		return err
	}
	if errors.Is(refusal, record.ErrBinary) {
		return refusal // the next session reads text
	}
	if isolated {
		return ErrIsolated
	}
	d.shared.Rejected.Reject(reason, row.Relation.Qualified(), row.Place(), refusal)
	return x.endAtRow(row, nil, reason, d.shared.hints.Past(row.Place().Commit, reason, refusal))
}

// sendEarlierTransactions sends what commits before the transaction of the row that is routed next.
func (x *exactlyOnce) sendEarlierTransactions(f *InFlight) {
	if i := wal.RowFrom(f.batch.Rows, f.batch.Rows[f.routed].Place().Commit); i > 0 {
		records := x.delivery.withPosition(f.buf.Records[f.sent:])
		x.sendRowsBefore(f, records, i, true) // the rest is of the row's transaction, and is not sent
	}
}

// isHeldBack reports that no record failed by itself: the end of the stream left the
// transaction open.
func isHeldBack(err error) bool {
	e, ok := errors.AsType[*sink.Error](err)
	return ok && e.Reason == fault.ReasonHeldBack
}
