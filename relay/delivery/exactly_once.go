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
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/ending"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// With exactly-once the sink commits records and the position after them together.
// No position beyond a committed one is reported to the server, so the slot is never ahead of the
// checkpoint topic. The checkpoint covers rows that the slot sends again.
//
// Any failure ends the session. The next one opens the sink again, which finds out whether the last
// transaction was committed, and the server sends every row that was not. Nothing is retried in
// between: there is one way from a position to the records after it, and every start takes it.

// exactlyOnce sends in Kafka transactions, each with the position after it.
type exactlyOnce struct {
	delivery *Delivery
	sink     sink.Transactional
	id       string

	refuser sink.Refuser // of the sink; nil: it knows of no record beforehand

	found        []byte          // the topic's checkpoint when the session began
	resumedAt    stored.Position // what was delivered before the session
	renews       bool            // the topic gets resumedAt when the stream begins; until then its old checkpoint shows a loss
	held         atomic.Uint64   // the slot's position, until the stream has shown resumedAt.Last (resume.Prove); then zero
	sentTo       stored.Position // after everything that was sent; used only by the deliverer
	committedEnd atomic.Uint64   // position that may be confirmed to the server
	lost         chan error      // why the sink gave up
	finished     bool            // used only by the deliverer
}

// rejections are the records that the brokers rejected, from session to session. Their positions are
// of Shared.history. Only the deliverer uses them.
type rejections struct {
	records map[recordID]rejectedRecord
	strips  map[recordID]int // how often a record's letter was rejected too
}

func newRejections() rejections {
	return rejections{records: make(map[recordID]rejectedRecord), strips: make(map[recordID]int)}
}

// recordID names a record: a row may become several.
type recordID struct {
	row wal.Place
	n   int // its number among the records of the row, from 0
}

// rejectedRecord is why a record was rejected: it becomes a dead letter, or is skipped.
type rejectedRecord struct {
	reason string
	err    error
}

// forget drops the records of rows that a position covers: they will not be read again.
func (v *rejections) forget(pos *stored.Position) {
	covered := func(id recordID) bool { return pos.Covers(id.row.Commit, id.row.Ordinal) }
	maps.DeleteFunc(v.records, func(id recordID, _ rejectedRecord) bool { return covered(id) })
	maps.DeleteFunc(v.strips, func(id recordID, _ int) bool { return covered(id) })
}

// Rules: the brokers fence, and nothing that is committed is sent again.
func (x *exactlyOnce) Rules() Rules { return Rules{Fenced: true, Ordered: true} }

func (x *exactlyOnce) MakeRoom()                     { x.sink.Seal() }
func (x *exactlyOnce) Renew()                        { x.setPosition(false) }
func (x *exactlyOnce) Close(error)                   {}
func (x *exactlyOnce) ToRepeat(checkpoint.Stats) int { return 0 } // the checkpoint has them

// takeOver opens the sink for the holder of the slot, which fences every earlier holder, and finds
// the position to continue from.
func (d *Delivery) takeOver(ctx context.Context) error {
	shared, tx := d.shared, d.sink.(sink.Transactional)
	ctx, cancel := context.WithTimeout(ctx, shared.cfg.Handover) // the server gets no answer meanwhile
	defer cancel()
	origin, slot := d.start.Origin, shared.cfg.Resume.Slot
	x := &exactlyOnce{delivery: d, sink: tx, id: stored.TransactionalID(origin.SystemID, slot), lost: make(chan error, 1)}
	x.refuser, _ = tx.(sink.Refuser)
	value, err := tx.Open(ctx, sink.Holder{ID: x.id, Key: stored.Key(origin.SystemID, slot), Lost: x.onLost})
	if err != nil {
		return err
	}
	end := shared.Loss.EndFor(value, d.start.End)
	at, err := shared.cfg.Resume.ExactlyOnce(value, shared.committed.Load(), origin, d.start.LSN, end)
	shared.logResumed(&at, origin)
	if err != nil {
		return err
	}
	x.found, x.resumedAt, x.sentTo, x.renews = value, at.Position, at.Position, at.Renew
	x.committedEnd.Store(uint64(at.Position.End))
	if at.Unproven {
		x.held.Store(uint64(d.start.LSN))
	}
	if at.Lost {
		shared.committed.Store(&at.Position) // else the next start takes this checkpoint for one that lost its end
		shared.Loss = resume.Loss{Checkpoint: value, End: end, Unseen: shared.Loss.Unseen}
	}
	d.guarantee = x
	shared.rejections.forget(&at.Position)
	shared.traces.Committed(at.Position.Covers)
	return nil
}

func (x *exactlyOnce) covers(row *wal.Row) bool {
	id := row.Place()
	return x.resumedAt.Covers(id.Commit, id.Ordinal)
}

func (x *exactlyOnce) Limit(lsn wal.LSN) wal.LSN {
	if held := x.held.Load(); held != 0 {
		return min(lsn, wal.LSN(held))
	}
	return min(lsn, wal.LSN(x.committedEnd.Load()))
}

func (x *exactlyOnce) follow(b *wal.Batch) error {
	if x.held.Load() == 0 {
		return nil
	}
	proven, err := resume.Prove(&x.resumedAt, b)
	if err != nil {
		x.delivery.shared.Loss = resume.Loss{Checkpoint: x.found, End: x.delivery.start.LSN, Unseen: true}
	}
	if proven {
		x.held.Store(0)
	}
	return err
}

// setPosition hands the sink the current position.
func (x *exactlyOnce) setPosition(now bool) {
	pos := x.sentTo
	x.sink.SetPosition(sink.Position{
		Value: pos.Encode(), Whole: pos.Part.Commit == 0, Now: now,
		Committed: func() { x.committed(&pos) },
	})
}

// renewEvery is how often the position is committed while nothing moves: brokers forget a
// transactional id that is not used for a week (transactional.id.expiration.ms) and refuse its next
// transaction.
const renewEvery = 12 * time.Hour

func (x *exactlyOnce) Renewal() (<-chan time.Time, func()) {
	if x.renews {
		x.setPosition(true)
	}
	t := time.NewTicker(renewEvery)
	return t.C, t.Stop
}

// committed runs on a goroutine of the sink.
func (x *exactlyOnce) committed(pos *stored.Position) {
	x.committedEnd.Store(uint64(max(pos.End, wal.LSN(x.committedEnd.Load()))))
	x.delivery.shared.committed.Store(pos)
}

func (x *exactlyOnce) Pass(through wal.LSN) {
	if through > x.sentTo.End {
		x.sentTo.Advance(through, nil)
		x.setPosition(false)
	}
}

// send hands over the records and the position after them. If the batch ends inside a source
// transaction, send also sets the position before it, so that a Kafka transaction can end there.
func (x *exactlyOnce) send(f *InFlight) {
	d := x.delivery
	records := d.withPosition(f.buf.Records[f.sent:])
	all := f.sent+len(records) == len(f.buf.Records)
	rows := f.batch.Rows
	// Kafka transactions end before the blocked row's transaction and before the isolated one; these
	// may be two.
	blocked, isolated := d.shared.monitor.BlockedCommit(), d.shared.isolated
	for _, stuck := range slices.Compact([]wal.LSN{min(blocked, isolated), max(blocked, isolated)}) {
		switch i := wal.RowFrom(rows, stuck); {
		case i == 0 && rows[0].Place().Commit == stuck && x.sentTo.Part.Commit != stuck: // it begins here
			x.setPosition(true)
		case i > 0 && i < len(rows):
			records = x.sendRowsBefore(f, records, i, true)
		}
	}
	last := &rows[len(rows)-1]
	open := f.continues(last)
	if open {
		if i := wal.RowFrom(rows, last.Txn.Commit); i > 0 {
			records = x.sendRowsBefore(f, records, i, false)
		}
	}
	if len(records) > 0 {
		x.sendRecords(f, records)
	}
	switch {
	case !all || len(d.held) > 0: // no position covers rows that wait for their commit, whatever came after them
	case open:
		x.sentTo.Advance(f.batch.Through, last)
		x.sentTo.Divide(last, d.shared.cfg.Resume.Shape)
		x.setPosition(false)
	default:
		x.sentTo.Advance(max(f.batch.Through, wal.EndBefore(rows, len(rows))), last)
		x.setPosition(false)
	}
}

// sendRowsBefore sends the records of the rows before the i-th, which begins a transaction, and sets the
// position there. It returns the rest.
func (x *exactlyOnce) sendRowsBefore(f *InFlight, records []record.Record, i int, now bool) []record.Record {
	n, commit := 0, f.batch.Rows[i].Place().Commit
	for n < len(records) && records[n].Row.Place().Commit < commit {
		n++
	}
	if n > 0 {
		x.sendRecords(f, records[:n])
	}
	x.sentTo.Advance(wal.EndBefore(f.batch.Rows, i), &f.batch.Rows[i-1])
	x.setPosition(now)
	return records[n:]
}

// continues reports whether a row's transaction continues after the batch. Its end may be known all
// the same, from an earlier reading (ReadThrough).
func (f *InFlight) continues(row *wal.Row) bool {
	return !row.Outside() && (row.Txn.End == 0 || row.Txn.End > f.batch.Through)
}

func (x *exactlyOnce) Finish() {
	if x.finished {
		return
	}
	x.finished = true
	x.delivery.sends.outstanding.Add(1)
	x.sink.Finish(func(error) { x.delivery.answered() })
}

// onLost runs on a goroutine of the sink.
func (x *exactlyOnce) onLost(err error) {
	x.lost <- err // room for one, and there is never a second
	select {
	case x.delivery.sends.wake <- struct{}{}:
	default:
	}
}

func (x *exactlyOnce) Recover(ctx, deliveryCtx context.Context) error {
	d := x.delivery
	if !d.Failed() && len(x.lost) == 0 {
		return nil
	}
	if err := d.quiesce(deliveryCtx); err != nil {
		return err
	}
	var cause error
	select {
	case cause = <-x.lost: // the sink gives up right after the failures
	case <-deliveryCtx.Done():
		return d.session.DrainTimeout()
	}
	records, failures := x.failures()
	err := x.afterAbort(deliveryCtx, records, failures, cause)
	if e, ok := errors.AsType[*sink.Error](err); ok && e.Class == sink.Retry && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ending.ErrDrainCut, err)
	}
	return err
}

// searchError is the error of a search for rejected records: why the session ends, else err.
func (x *exactlyOnce) searchError(err error) error {
	if x.delivery.session.Searching().Err() == nil {
		return err
	}
	if ended := x.delivery.session.TakeEnd(); ended != nil {
		return ended
	}
	return err
}

// failures lists what failed in the order of the stream, each with its record.
func (x *exactlyOnce) failures() ([]record.Record, []sink.Failure) {
	var records []record.Record
	var failures []sink.Failure
	for _, f := range x.delivery.takeFailed() {
		partial, ok := errors.AsType[*sink.FailedError](f.err)
		if !ok {
			continue
		}
		for _, failure := range partial.Failures {
			x.delivery.shared.traces.Failed(f.send.spans, &f.send.records[failure.Index], sink.Retry, failure.Reason)
			records = append(records, f.send.records[failure.Index])
			failures = append(failures, failure)
		}
	}
	return records, failures
}

// afterAbort decides what to do about a transaction that was not committed.
func (x *exactlyOnce) afterAbort(deliveryCtx context.Context, records []record.Record, failures []sink.Failure, cause error) error {
	var candidates []record.Record
	first := -1
	for i, f := range failures {
		if first < 0 && !errors.Is(f.Err, sink.ErrHalted) {
			first = i
		}
		if f.Class == sink.Rejected {
			candidates = append(candidates, records[i])
		}
	}
	if len(candidates) > 0 {
		ctx, cancel := context.WithTimeout(deliveryCtx, searchTimeout)
		defer cancel()
		defer context.AfterFunc(x.delivery.session.Searching(), cancel)()
		if x.delivery.session.Searching().Err() != nil {
			cancel()
		}
		found, err := x.sink.FindRejected(ctx, x.id, candidates)
		if err != nil {
			return x.searchError(err)
		}
		return x.decide(candidates, found)
	}
	if first < 0 {
		return cause
	}
	f := &failures[first]
	if x.delivery.shared.ev.ProduceRetried != nil {
		x.delivery.shared.ev.ProduceRetried(f.Reason)
	}
	err := f.AsError()
	if f.Class == sink.Blocked && f.Reason != fault.ReasonFenced {
		x.delivery.shared.monitor.BlockedAt(records[first].Row, &records[first], x.delivery.Lineage(), f.Reason, err)
	}
	return err
}

// logResumed logs what an operator has to know of where a start continues, refused or not.
func (s *Shared) logResumed(at *resume.Point, origin wal.Origin) {
	switch {
	case at.Gone:
		s.log.Error().Str("topic", s.cfg.Resume.CheckpointTopic).Stringer("lsn", at.Position.End).Msg("the checkpoint is gone from its topic; continuing from the position that this process committed last")
	case at.Lost:
		s.monitor.LostForks.Add(1)
		s.log.Error().Stringer("lsn", at.Position.End).Stringer("checkpoint", at.Was.End).Msg(s.Loss.Text())
	case at.First:
		s.log.Warn().Str("topic", s.cfg.Resume.CheckpointTopic).Str("slot", s.cfg.Resume.Slot).Stringer("lsn", at.Position.End).Msg("no checkpoint for this slot: exactly-once starts at the slot's position. Rows that another relay delivered beyond it are repeated")
	}
	if at.Fork != nil {
		s.logForked(resume.Known{Origin: wal.Origin{SystemID: at.Was.System, Timeline: at.Was.Timeline}, Reported: at.Was.End}, origin, *at.Fork)
	}
}
