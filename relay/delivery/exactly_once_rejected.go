package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// With exactly-once a row that can never be delivered is found by trying records in
// transactions that are aborted. What becomes of it is remembered, and the session
// that reads it again puts its dead letter in its place, or nothing, before it is
// sent: a source transaction is never divided for it.

// convictTimeout bounds the search for the guilty records.
const convictTimeout = time.Minute

// errSentenced ends a session to have rows sent again of which it is known now what
// becomes of them.
var errSentenced = errors.New("rows were refused by the brokers; their transaction is sent again without them")

// ErrTogether ends a session at a transaction that cannot be delivered, to have what
// commits before it committed without its beginning: whoever gives the transaction up
// moves the slot over both.
var ErrTogether = errors.New("rows were given up with the beginning of a later transaction that cannot be delivered; they are sent again without that")

// takeApart says whether that has happened to a transaction for the first time. No answer
// is waited for any more.
func (x *exactlyOnce) takeApart(commit wal.LSN) bool {
	if x.d.m.apart == commit {
		return false
	}
	d := x.d
	d.sends.mu.Lock()
	defer d.sends.mu.Unlock()
	for _, f := range d.sends.failed {
		for i := range f.p.records {
			if row := f.p.records[i].Row; row != nil && deadletter.RowOf(row).Commit < commit {
				d.m.apart = commit
				return true
			}
		}
	}
	return false
}

// unreadable reports first what keeps rows before the unreadable one from being committed:
// skipping that row would give them up too. A relay that is fenced here lost the slot, which
// the server lets go with such an error, to one that stands by.
func (x *exactlyOnce) Unreadable(ctx, within context.Context, unread error) error {
	if x.d.sends.outstanding.Load() > 0 {
		return unread
	}
	last, _ := x.d.s.Last()
	together := x.takeApart(last.Commit)
	err := x.Recover(ctx, within)
	own, ok := errors.AsType[*sink.Error](err)
	switch {
	case err == nil || isHeldBack(err):
		x.d.together = together
	case within.Err() == nil && (!ok || own.Reason != sink.ReasonFenced):
		return err
	}
	return unread
}

// HeldError ends a session at a row that waits for somebody.
type HeldError struct {
	Reason string
	Err    error
}

func (e *HeldError) Error() string { return e.Err.Error() }
func (e *HeldError) Unwrap() error { return e.Err }

// sentence remembers what becomes of the guilty records.
func (x *exactlyOnce) sentence(suspects []record.Record, guilty map[int]sink.Failure) error {
	d, r := x.d, x.d.m
	if len(guilty) == 0 {
		return &sink.Error{Class: sink.Retry, Reason: "refused_together", Err: errors.New("the brokers refused records together that they take alone; trying smaller batches")}
	}
	for i := range suspects {
		f, found := guilty[i]
		rec := &suspects[i]
		if !found || rec.Row == nil {
			continue
		}
		row, id := rec.Row, recordName(rec)
		cause := &RowBlockedError{
			Reason: f.Reason, Err: f.Err, Table: row.Relation.Namespace + "." + row.Relation.Name,
			LSN: row.LSN, Ordinal: row.Ordinal, Commit: id.row.Commit,
		}
		switch {
		case r.cfg.OnReject == StopOnReject:
			d.m.Rejected.Reject(f.Reason, id.row, cause)
			cause.Err = d.letterWay(f.Reason, cause.Err) // what lay before it was aborted with it
			return x.held(row, f.Reason, cause)
		case r.cfg.OnReject == DeadLetterOnReject && rec.Topic == r.cfg.DeadLetterTopic: // a letter: see keepOut
			letter := *rec
			if !deadletter.Strip(&letter) {
				return x.held(row, f.Reason, cause)
			}
			put(&r.verdicts.strips, id, r.verdicts.strips[id]+1)
		default:
			d.m.Rejected.Aside(f.Reason, row, cause)
			put(&r.verdicts.condemned, id, condemned{reason: f.Reason, err: cause})
		}
	}
	return errSentenced
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

// held has the session end at a row, and the next one commit what lies before its
// transaction.
func (x *exactlyOnce) held(row *wal.Row, reason string, cause error) error {
	x.d.m.board.BlockedAt(row, x.d.Lineage(), reason, cause)
	return &HeldError{reason, cause}
}

func (x *exactlyOnce) replace(f *InFlight, n int, row *wal.Row) error {
	d := x.d
	if len(d.m.verdicts.condemned) == 0 {
		return nil
	}
	records := f.buf.Records[n:]
	kept := records[:0]
	for i := range records {
		rec := &records[i]
		c, ok := d.m.verdicts.condemned[recordName(rec)]
		if !ok {
			kept = append(kept, *rec)
			continue
		}
		d.m.Rejected.Reject(c.reason, deadletter.RowOf(row), c.err)
		if d.m.cfg.OnReject == SkipOnReject {
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

// hand gives the sink records with what earlier sessions found out about their keys and
// letters.
func (x *exactlyOnce) hand(f *InFlight, records []record.Record) {
	x.d.follow(f, records)
	x.shorten(records)
	x.d.hand(f, records)
}

// shorten leaves out of letters what the brokers did not take with them.
func (x *exactlyOnce) shorten(records []record.Record) {
	if len(x.d.m.verdicts.strips) == 0 {
		return
	}
	for i := range records {
		if records[i].Row == nil || records[i].Topic != x.d.m.cfg.DeadLetterTopic {
			continue
		}
		for range x.d.m.verdicts.strips[recordName(&records[i])] {
			deadletter.Strip(&records[i])
		}
	}
}

// rejected ends the session. What commits before the row's transaction is committed first.
func (x *exactlyOnce) rejected(ctx, hard context.Context, f *InFlight, rejection error) error {
	d := x.d
	row := &f.batch.Rows[f.routed]
	reason := rejectionReason(rejection)
	if i := rowFrom(f.batch.Rows, deadletter.RowOf(row).Commit); i > 0 {
		records := d.placed(f.buf.Records[f.sent:])
		if rest := x.cut(f, records, i, true); len(rest) > 0 {
			d.m.log.Debug().Int("records", len(rest)).Msg("records of a transaction with a rejected row are not sent")
		}
	}
	x.Finish()
	if err := d.quiesce(hard); err != nil {
		return err
	}
	together := x.takeApart(deadletter.RowOf(row).Commit)
	if len(x.lost) > 0 || d.Failed() {
		if err := x.Recover(ctx, hard); err != nil && !isHeldBack(err) {
			return err
		}
	}
	if errors.Is(rejection, record.ErrBinary) {
		return rejection // the next session reads text
	}
	if together {
		return ErrTogether
	}
	d.m.Rejected.Reject(reason, deadletter.RowOf(row), rejection)
	return x.held(row, reason, d.wayOut(deadletter.RowOf(row).Commit, reason, rejection))
}

// isHeldBack says that nothing failed but what the end of the stream left open.
func isHeldBack(err error) bool {
	e, ok := errors.AsType[*sink.Error](err)
	return ok && e.Reason == "held_back"
}
