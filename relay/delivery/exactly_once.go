package delivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// With exactly-once the sink commits records and the position behind them together.
// The slot is told no position beyond a committed one, so it is never ahead of the
// checkpoint topic, and what the slot brings again the checkpoint says is there.
//
// Any failure ends the session. The next one opens the sink anew, which settles what
// became of the last transaction, and the server sends what was not committed.
// Nothing is repaired in between: there is one way from a position to the records
// behind it, and every start takes it.

// TransactionalSink is what a relay needs of a sink for exactly-once;
// *kafkatx.Transactional satisfies it.
type TransactionalSink interface {
	sink.Sink
	Open(ctx context.Context, h sink.Holder) ([]byte, error)
	Mark(m sink.Position)
	Seal()
	Finish(done func(error))
	Convict(ctx context.Context, id string, records []record.Record) (map[int]sink.Failure, error)
}

// exactlyOnce sends in Kafka transactions, each with the position behind it.
type exactlyOnce struct {
	d    *Delivery
	sink TransactionalSink
	id   string

	start    checkpoint.Record // what was delivered before the session
	at       checkpoint.Record // behind everything that was sent; goroutine B's
	covered  atomic.Uint64     // may be told to the server
	lost     chan error        // why the sink gave up
	finished bool              // goroutine B's
}

// verdicts are what is remembered of records that brokers refused, from session to
// session. They belong to Run's goroutine, but for last.
type verdicts struct {
	of        wal.Lineage // the history that the positions are of
	condemned map[recordID]condemned
	strips    map[recordID]int                  // how often a record's letter was refused too
	last      atomic.Pointer[checkpoint.Record] // the newest that this process committed
}

// recordID names a record: a row may become several.
type recordID struct {
	row deadletter.Row
	n   int // among those that the router makes of the row, from 0
}

// condemned is a record that goes among the dead letters, or nowhere.
type condemned struct {
	reason string
	err    error
}

// belong forgets what is known of rows of another history, in which other rows have
// their positions.
func (v *verdicts) belong(to wal.Lineage) {
	if v.of != to {
		v.of, v.condemned, v.strips = to, nil, nil
	}
}

// forget drops what a record covers: it will not be read again.
func (v *verdicts) forget(rec *checkpoint.Record) {
	covered := func(id recordID) bool { return rec.Covers(id.row.Commit, id.row.Seq) }
	maps.DeleteFunc(v.condemned, func(id recordID, _ condemned) bool { return covered(id) })
	maps.DeleteFunc(v.strips, func(id recordID, _ int) bool { return covered(id) })
}

// rules: a Kafka transaction has to fit into the window, and room for the next one, so the
// growth counts for less.
func (x *exactlyOnce) Rules() Rules { return Rules{Fenced: true, Ordered: true, Growth: 3} }

func (x *exactlyOnce) MakeRoom()                     { x.sink.Seal() }
func (x *exactlyOnce) Renew()                        { x.mark(false) }
func (x *exactlyOnce) Close(error)                   {}
func (x *exactlyOnce) ToRepeat(checkpoint.Stats) int { return 0 } // the checkpoint has them

// takeOver opens the sink for the holder of the slot, and finds where to go on.
func (d *Delivery) takeOver(ctx context.Context) error {
	m := d.m
	tx := d.sink.(TransactionalSink)
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Handover) // nobody answers the server meanwhile
	defer cancel()
	origin := d.start.Origin
	slot := m.cfg.Resume.Slot
	x := &exactlyOnce{d: d, sink: tx, id: checkpoint.TransactionalID(origin.SystemID, slot), lost: make(chan error, 1)}
	value, err := tx.Open(ctx, sink.Holder{ID: x.id, Key: checkpoint.Key(origin.SystemID, slot), Lost: x.onLost})
	if err != nil {
		return err
	}
	at, err := m.cfg.Resume.ExactlyOnce(value, m.verdicts.last.Load(), origin, d.start.Position)
	m.sayResumed(&at, origin)
	if err != nil {
		return err
	}
	rec := at.Rec
	x.start, x.at = rec, rec
	x.covered.Store(uint64(rec.End))
	d.guarantee = x
	m.verdicts.belong(d.Lineage())
	m.verdicts.forget(&rec)
	if at.Renew {
		x.mark(true)
	}
	return nil
}

func (x *exactlyOnce) covers(row *wal.Row) bool {
	id := deadletter.RowOf(row)
	return x.start.Covers(id.Commit, id.Seq)
}

func (x *exactlyOnce) Limit(lsn uint64) uint64 {
	return min(lsn, x.covered.Load())
}

// advance moves the position to the end of a whole transaction, or to that of a
// keep-alive. One that lies before the divided transaction leaves it as it is.
func (x *exactlyOnce) advance(end wal.LSN) {
	x.at.End = max(x.at.End, end)
	if x.at.Part.Commit < end {
		x.at.Part = checkpoint.Part{}
	}
}

// mark tells the sink the present position.
func (x *exactlyOnce) mark(now bool) {
	rec := x.at
	x.sink.Mark(sink.Position{
		Value: rec.Encode(), Whole: rec.Part.Commit == 0, Now: now,
		Committed: func() { x.committed(&rec) },
	})
}

// renewEvery is how often the position is committed though nothing moves: brokers forget
// a transactional id that is not used for a week (transactional.id.expiration.ms), and
// refuse its next transaction.
const renewEvery = 12 * time.Hour

func (x *exactlyOnce) Renewal() (<-chan time.Time, func()) {
	t := time.NewTicker(renewEvery)
	return t.C, t.Stop
}

// committed runs on a goroutine of the sink.
func (x *exactlyOnce) committed(rec *checkpoint.Record) {
	x.covered.Store(uint64(max(rec.End, wal.LSN(x.covered.Load()))))
	x.d.m.verdicts.last.Store(rec)
}

func (x *exactlyOnce) Pass(through wal.LSN) {
	if through > x.at.End {
		x.advance(through)
		x.mark(false)
	}
}

// send hands over the position behind the records too. Marks lie between
// source transactions wherever the batch shows where one ends.
func (x *exactlyOnce) send(f *InFlight) {
	d := x.d
	records := d.placed(f.buf.Records[f.sent:])
	all := f.sent+len(records) == len(f.buf.Records)
	rows := f.batch.Rows
	// What is stuck may lie before the transaction that is kept apart: cut at both.
	at, apart := d.m.board.StuckAt(), d.m.apart
	for _, stuck := range slices.Compact([]wal.LSN{min(at, apart), max(at, apart)}) {
		switch i := rowFrom(rows, stuck); {
		case i == 0 && deadletter.RowOf(&rows[0]).Commit == stuck && x.at.Part.Commit != stuck: // it begins here
			x.mark(true)
		case i > 0 && i < len(rows):
			records = x.cut(f, records, i, true)
		}
	}
	last := &rows[len(rows)-1]
	open := f.unended(last)
	if open {
		if i := rowFrom(rows, last.Txn.Commit); i > 0 {
			records = x.cut(f, records, i, false)
		}
	}
	if len(records) > 0 {
		x.hand(f, records)
	}
	switch {
	case !all || len(d.held) > 0: // rows that wait for their commit are in no mark, whatever came behind them
	case open:
		x.advance(f.batch.Through)
		x.divide(last)
		x.mark(false)
	default:
		x.advance(max(f.batch.Through, endBefore(rows, len(rows))))
		x.mark(false)
	}
}

// divide moves the position behind a row of a transaction that goes on. It never goes
// back: a slot that is behind brings transactions again that lie before the position,
// and before the one that is divided there.
func (x *exactlyOnce) divide(last *wal.Row) {
	commit, part := last.Txn.Commit, &x.at.Part
	switch {
	case commit < max(x.at.End, part.Commit):
	case commit == part.Commit:
		part.Rows = max(part.Rows, last.Ordinal)
	default:
		*part = checkpoint.Part{Commit: commit, Rows: last.Ordinal, Shape: x.d.m.cfg.Resume.Shape}
	}
}

// cut sends the records of the rows before the i-th, which begins a transaction, and
// marks the position there. It returns the rest.
func (x *exactlyOnce) cut(f *InFlight, records []record.Record, i int, now bool) []record.Record {
	n, commit := 0, deadletter.RowOf(&f.batch.Rows[i]).Commit
	for n < len(records) && deadletter.RowOf(records[n].Row).Commit < commit {
		n++
	}
	if n > 0 {
		x.hand(f, records[:n])
	}
	x.advance(endBefore(f.batch.Rows, i))
	x.mark(now)
	return records[n:]
}

// rowFrom is the index of the first row that commits there or later.
func rowFrom(rows []wal.Row, commit wal.LSN) int {
	for i := range rows {
		if deadletter.RowOf(&rows[i]).Commit >= commit {
			return i
		}
	}
	return len(rows)
}

// unended says that a row's transaction does not end in the flight's batch.
func (f *InFlight) unended(row *wal.Row) bool {
	return !row.Outside() && (row.Txn.End == 0 || row.Txn.End > f.batch.Through)
}

// endBefore is the end of what precedes a row in its batch.
func endBefore(rows []wal.Row, i int) wal.LSN {
	row := &rows[i-1]
	if row.Outside() {
		return row.Txn.Commit // it has no other
	}
	return row.Txn.End
}

func (x *exactlyOnce) Finish() {
	if x.finished {
		return
	}
	x.finished = true
	x.d.sends.outstanding.Add(1)
	x.sink.Finish(func(error) { x.d.sent() })
}

// onLost runs on a goroutine of the sink.
func (x *exactlyOnce) onLost(err error) {
	x.lost <- err // room for one, and there is never a second
	select {
	case x.d.sends.wake <- struct{}{}:
	default:
	}
}

func (x *exactlyOnce) Recover(ctx, hard context.Context) error {
	d := x.d
	if !d.Failed() && len(x.lost) == 0 {
		return nil
	}
	if err := d.quiesce(hard); err != nil {
		return err
	}
	var cause error
	select {
	case cause = <-x.lost: // it comes right behind the failures
	case <-hard.Done():
		return d.s.Cut()
	}
	records, failures := x.failures()
	err := x.judge(hard, records, failures, cause)
	if e, ok := errors.AsType[*sink.Error](err); ok && e.Class == sink.Retry && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrDrainCut, err)
	}
	return err
}

// why is what ended the search for the guilty, or the error that it ended with.
func (x *exactlyOnce) why(err error) error {
	if x.d.s.Judging().Err() == nil {
		return err
	}
	if ended := x.d.s.Ended(); ended != nil {
		return ended
	}
	return err
}

// failures lists what failed in the order of the stream, each with its record.
func (x *exactlyOnce) failures() ([]record.Record, []sink.Failure) {
	d := x.d
	d.sends.mu.Lock()
	failed := d.sends.failed
	d.sends.failed = nil
	d.sends.mu.Unlock()
	sortPieces(failed)
	var records []record.Record
	var failures []sink.Failure
	for _, f := range failed {
		partial, ok := errors.AsType[*sink.FailedError](f.err)
		if !ok {
			continue
		}
		for _, failure := range partial.Failures {
			records = append(records, f.p.records[failure.Index])
			failures = append(failures, failure)
		}
	}
	return records, failures
}

// judge decides what follows from a transaction that was not committed.
func (x *exactlyOnce) judge(hard context.Context, records []record.Record, failures []sink.Failure, cause error) error {
	var suspects []record.Record
	first := -1
	for i, f := range failures {
		if first < 0 && !errors.Is(f.Err, sink.ErrHalted) {
			first = i
		}
		if f.Class == sink.Rejected {
			suspects = append(suspects, records[i])
		}
	}
	if len(suspects) > 0 {
		ctx, cancel := context.WithTimeout(hard, convictTimeout)
		defer cancel()
		defer context.AfterFunc(x.d.s.Judging(), cancel)()
		if x.d.s.Judging().Err() != nil {
			cancel()
		}
		guilty, err := x.sink.Convict(ctx, x.id, suspects)
		if err != nil {
			return x.why(err)
		}
		return x.sentence(suspects, guilty)
	}
	if first < 0 {
		return cause
	}
	f := &failures[first]
	if x.d.m.ev.ProduceRetried != nil {
		x.d.m.ev.ProduceRetried(f.Reason)
	}
	err := &sink.Error{Class: f.Class, Reason: f.Reason, Err: f.Err}
	if row := records[first].Row; row != nil && f.Class == sink.Blocked && f.Reason != sink.ReasonFenced {
		x.d.m.board.BlockedAt(row, x.d.Lineage(), f.Reason, err)
	}
	return err
}

// sayResumed logs what an operator has to know of where a start goes on, refused or not.
func (m *Memory) sayResumed(at *resume.Point, origin wal.Origin) {
	switch {
	case at.Gone:
		m.log.Error().Str("topic", m.cfg.Resume.CheckpointTopic).Stringer("lsn", at.Rec.End).Msg("the checkpoint is gone from its topic; going on from what this process committed last")
	case at.First:
		m.log.Warn().Str("topic", m.cfg.Resume.CheckpointTopic).Str("slot", m.cfg.Resume.Slot).Stringer("lsn", at.Rec.End).
			Msg("no checkpoint for this slot: exactly once begins at the slot's position. What another relay delivered beyond it comes again")
	}
	if at.Fork != nil {
		m.sayForked(resume.Known{Origin: wal.Origin{SystemID: at.Was.System, Timeline: at.Was.Timeline}, Told: at.Was.End}, origin, *at.Fork)
	}
}
