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

// With exactly-once a rejected record is found by bisection: the sink sends the records of the
// failed transaction again in transactions that it aborts. The decision about the record is
// remembered (rejections), and the session that reads the row again puts the dead letter in the
// record's place, or nothing, before it is sent: a source transaction is never divided for it.

// searchTimeout bounds the search for rejected records.
const searchTimeout = time.Minute

// errDecided ends a session whose rejected records are found: the next session sends their
// transaction again with dead letters in their place, or without them.
var errDecided = errors.New("the brokers rejected records; their transaction is sent again without them")

// ErrIsolated ends a session at a transaction that cannot be delivered, whose beginning shares a
// Kafka transaction with rows before it. The next session commits these rows by themselves:
// giving the transaction up moves the slot over everything before it.
var ErrIsolated = errors.New("rows were aborted together with the start of a later transaction that cannot be delivered; they are sent again without it")

// isolate reports whether a transaction has to be isolated, and was not yet. Every send is
// answered by then.
func (x *exactlyOnce) isolate(commit wal.LSN) bool {
	if x.d.m.isolated == commit {
		return false
	}
	d := x.d
	d.sends.mu.Lock()
	defer d.sends.mu.Unlock()
	for _, f := range d.sends.failed {
		for i := range f.p.records {
			if row := f.p.records[i].Row; row != nil && deadletter.RowOf(row).Commit < commit {
				d.m.isolated = commit
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
	if x.d.sends.outstanding.Load() > 0 {
		return unread
	}
	last, _ := x.d.s.Last()
	isolated := x.isolate(last.Commit)
	err := x.Recover(ctx, within)
	own, ok := errors.AsType[*sink.Error](err)
	switch {
	case err == nil || isHeldBack(err):
		x.d.isolates = isolated
	case within.Err() == nil && (!ok || own.Reason != fault.ReasonFenced):
		return err
	}
	return unread
}

// BlockedAtRowError ends a session at a row that only a person can get past.
type BlockedAtRowError struct {
	Reason string
	Err    error
}

func (e *BlockedAtRowError) Error() string { return e.Err.Error() }
func (e *BlockedAtRowError) Unwrap() error { return e.Err }

// decide applies relay.on_reject to the rejected records among the candidates.
func (x *exactlyOnce) decide(candidates []record.Record, found map[int]sink.Failure) error {
	d, m := x.d, x.d.m
	if len(found) == 0 {
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonRefusedTogether, Err: errors.New("the brokers rejected records in one batch that they accept one at a time; trying smaller batches")}
	}
	for i := range candidates {
		f, is := found[i]
		rec := &candidates[i]
		if !is || rec.Row == nil {
			continue
		}
		row, id := rec.Row, recordName(rec)
		cause := rejected.Blocked(f.Reason, f.Err, row)
		switch {
		case m.cfg.OnReject == StopOnReject:
			d.m.Rejected.Reject(f.Reason, cause.Table, id.row, cause)
			cause.Err = d.m.hints.DeadLetter(f.Reason, cause.Err) // what lies before it was aborted with it
			return x.blockAt(row, rec, f.Reason, cause)
		case m.cfg.OnReject == DeadLetterOnReject && rec.Topic == m.cfg.DeadLetterTopic: // a letter, as no row has that topic (router.Config.Reserved)
			letter := *rec
			if !deadletter.Strip(&letter) {
				return x.blockAt(row, rec, f.Reason, cause)
			}
			put(&m.rejections.strips, id, m.rejections.strips[id]+1)
		default:
			d.m.Rejected.Aside(f.Reason, row, cause)
			put(&m.rejections.records, id, rejectedRecord{reason: f.Reason, err: cause})
		}
	}
	return errDecided
}

// put makes the map with its first entry.
func put[V any](m *map[recordID]V, id recordID, v V) {
	if *m == nil {
		*m = make(map[recordID]V)
	}
	(*m)[id] = v
}

// recordName is the name of a record that has a row.
func recordName(rec *record.Record) recordID {
	return recordID{deadletter.RowOf(rec.Row), int(rec.Nth)}
}

// blockAt ends the session at a row. The next one commits everything before the row's
// transaction.
func (x *exactlyOnce) blockAt(row *wal.Row, rec *record.Record, reason string, cause error) error {
	x.d.m.monitor.BlockedAt(row, rec, x.d.Lineage(), reason, cause)
	return &BlockedAtRowError{reason, cause}
}

func (x *exactlyOnce) replace(f *InFlight, n int, row *wal.Row) error {
	d := x.d
	if len(d.m.rejections.records) == 0 {
		return nil
	}
	records := f.buf.Records[n:]
	kept := records[:0]
	for i := range records {
		rec := &records[i]
		c, ok := d.m.rejections.records[recordName(rec)]
		if !ok {
			kept = append(kept, *rec)
			continue
		}
		d.m.Rejected.Reject(c.reason, row.Relation.Qualified(), deadletter.RowOf(row), c.err)
		if d.m.cfg.OnReject == SkipOnReject {
			d.m.traces.Skipped(f.buf.Spans, rec, c.reason)
			continue
		}
		if err := d.park(rec); err != nil {
			return fmt.Errorf("%w; the row: %w", err, c.err)
		}
		kept = append(kept, d.letter(rec, c.reason, c.err))
		f.letters = append(f.letters, c.reason)
	}
	f.buf.Records = f.buf.Records[:n+len(kept)]
	return nil
}

// sendRecords gives the sink records, after parked keys and shortened letters are applied.
func (x *exactlyOnce) sendRecords(f *InFlight, records []record.Record) {
	x.d.follow(f, records)
	x.shorten(records)
	x.d.sendRecords(f, records)
}

// shorten strips each letter once for each time that the brokers rejected it.
func (x *exactlyOnce) shorten(records []record.Record) {
	if len(x.d.m.rejections.strips) == 0 {
		return
	}
	for i := range records {
		if records[i].Row == nil || records[i].Topic != x.d.m.cfg.DeadLetterTopic {
			continue
		}
		for range x.d.m.rejections.strips[recordName(&records[i])] {
			deadletter.Strip(&records[i])
		}
	}
}

// rejected ends the session at a row that the router refuses. Everything that commits before
// the row's transaction is committed first.
func (x *exactlyOnce) rejected(ctx, deliveryCtx context.Context, f *InFlight, rejection error) error {
	d := x.d
	for need, ok := errors.AsType[*schemas.Need](rejection); ok; need, ok = errors.AsType[*schemas.Need](rejection) {
		x.sendBefore(f)
		if err := d.awaitSchema(ctx, deliveryCtx, f, need); err != nil {
			return err
		}
		if rejection = d.Route(f); rejection == nil {
			d.m.monitor.ClearBlocked()
			x.send(f)
			return nil
		}
	}
	row := &f.batch.Rows[f.routed]
	reason := rejectionReason(rejection)
	x.sendBefore(f)
	x.Finish()
	if err := d.quiesce(deliveryCtx); err != nil {
		return err
	}
	isolated := x.isolate(deadletter.RowOf(row).Commit)
	if err := x.Recover(ctx, deliveryCtx); err != nil && !isHeldBack(err) {
		return err
	}
	if errors.Is(rejection, record.ErrBinary) {
		return rejection // the next session reads text
	}
	if isolated {
		return ErrIsolated
	}
	d.m.Rejected.Reject(reason, row.Relation.Qualified(), deadletter.RowOf(row), rejection)
	return x.blockAt(row, nil, reason, d.m.hints.Past(deadletter.RowOf(row).Commit, reason, rejection))
}

// sendBefore sends what commits before the transaction of the row that is routed next.
func (x *exactlyOnce) sendBefore(f *InFlight) {
	if i := rowFrom(f.batch.Rows, deadletter.RowOf(&f.batch.Rows[f.routed]).Commit); i > 0 {
		records := x.d.withPosition(f.buf.Records[f.sent:])
		x.cut(f, records, i, true) // what it returns is of the row's transaction, and is not sent
	}
}

// isHeldBack reports that no record failed by itself: the end of the stream left the
// transaction open.
func isHeldBack(err error) bool {
	e, ok := errors.AsType[*sink.Error](err)
	return ok && e.Reason == fault.ReasonHeldBack
}
