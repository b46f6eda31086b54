package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// atLeastOnce retries in memory, inside the session: what is durable is never sent twice,
// and what failed is sent again in the order of the stream.
type atLeastOnce struct{ s *session }

func (d *atLeastOnce) rules() rules                         { return rules{repeats: true} }
func (d *atLeastOnce) covers(*wal.Row) bool                 { return false }
func (d *atLeastOnce) replace(*flight, int, *wal.Row) error { return nil }
func (d *atLeastOnce) pass(wal.LSN)                         {}
func (d *atLeastOnce) makeRoom()                            {}
func (d *atLeastOnce) renewal() (<-chan time.Time, func())  { return nil, func() {} }
func (d *atLeastOnce) renew()                               {}
func (d *atLeastOnce) finish()                              {}
func (d *atLeastOnce) limit(lsn uint64) uint64              { return lsn }

func (d *atLeastOnce) unreadable(_, _ context.Context, cause error) error { return cause }

// send waits when the sink has no room, and for the brokers to say where a topic's
// partitions are.
func (d *atLeastOnce) send(f *flight) {
	if records := d.s.placed(f.buf.Records[f.sent:]); len(records) > 0 {
		d.s.follow(f, records)
		d.s.hand(f, records)
	}
}

// ended remembers the part of an open transaction that is delivered (fragment). The
// tracker alone knows that nothing which was taken is missing: what failed may be in
// the hands of a recovery that was cut short.
func (d *atLeastOnce) ended(cause error) {
	s := d.s
	if cause == nil || postgres.KindOf(cause) != fault.KindProtocol {
		return
	}
	if s.taken.open && s.tracker.Stats().Rows == 0 {
		s.r.part.last = s.taken.last
	}
}

// toRepeat counts rows that are acknowledged and may not be confirmed, because they belong to
// a transaction of which a row is not, or lie behind one.
func (d *atLeastOnce) toRepeat(stats checkpoint.Stats) int {
	return stats.Done + max(0, int(d.s.shown.repeats.Load()))
}

// undelivered is one record that has to be sent again.
type undelivered struct {
	p       *piece
	index   int
	counted bool // RowRejected ran for it
}

// maxResend bounds how many records one resend carries while failures are about.
const maxResend = 1024

// recover brings every failed record to the brokers, in the order of the stream,
// and only those: what is durable is never sent twice.
//
// A failed record is not necessarily the guilty one, because the client fails
// whatever it holds for that partition. So records go again in runs that start
// with a single one and double while they succeed; a run that fails starts over
// with one. The guilty record is thus found when it fails alone, everything
// before it is delivered, and nothing after it overtakes.
func (d *atLeastOnce) recover(ctx, hard context.Context) error {
	s := d.s
	if !s.hasFailed() && !s.sends.stumbled.Load() {
		return nil
	}
	select {
	case <-s.intake.lost:
		return s.intake.srcErr
	case err := <-s.interrupts:
		return err
	default:
	}
	if err := s.quiesce(hard); err != nil {
		return err
	}
	s.sends.stumbled.Store(false)
	queue, err := d.collect()
	if err != nil {
		return err
	}
	s.sink.Resume()
	s.fill(false) // what is tried alone has nothing to wait for
	wait := backoff{min: s.r.cfg.RetryMin, max: s.r.cfg.RetryMax}
	for run := 1; len(queue) > 0; {
		s.followAll(queue)
		n := min(run, len(queue))
		failure, rest, err := d.resend(hard, queue[:n])
		if err != nil {
			return err
		}
		queue = append(rest, queue[n:]...)
		if failure == nil {
			run = min(2*run, maxResend)
			wait.reset()
			s.r.board.ClearBlocked()
			continue
		}
		run = 1
		s.sink.Resume()
		if n > 1 {
			continue
		}
		switch d.convict(&queue[0], failure) {
		case sendLetter:
			continue
		case skipRow:
			queue = queue[1:]
			continue
		case holdOn:
		}
		if err := d.guilty(ctx, hard, &queue[0], failure, &wait); err != nil {
			return err
		}
	}
	s.r.board.ClearBlocked()
	return nil
}

// collect lists the failed records in the order of the stream.
func (d *atLeastOnce) collect() ([]undelivered, error) {
	s := d.s
	s.sends.mu.Lock()
	failed := s.sends.failed
	s.sends.failed = nil
	s.sends.mu.Unlock()
	sortPieces(failed)
	var queue []undelivered
	for _, f := range failed {
		var partial *sink.FailedError
		if !errors.As(f.err, &partial) {
			return nil, f.err
		}
		f.p.left = len(partial.Failures)
		next := 0
		for _, failure := range partial.Failures {
			f.p.f.acknowledged(f.p.records[next:failure.Index])
			next = failure.Index + 1
		}
		f.p.f.acknowledged(f.p.records[next:])
		for _, failure := range partial.Failures {
			if errors.Is(failure.Err, sink.ErrClosed) {
				return nil, failure.Err
			}
			queue = append(queue, undelivered{p: f.p, index: failure.Index})
		}
	}
	return queue, nil
}

// resend sends a run and waits for its outcome. It returns the first failure that
// has a cause of its own, and what of the run is not durable.
func (d *atLeastOnce) resend(hard context.Context, run []undelivered) (*sink.Failure, []undelivered, error) {
	s := d.s
	records := make([]record.Record, len(run))
	for i, u := range run {
		records[i] = u.p.records[u.index]
	}
	outcome := make(chan error, 1)
	s.give(records, func(err error) {
		outcome <- err
		s.sent()
	})
	var err error
	select {
	case err = <-outcome:
	case err := <-s.interrupts:
		return nil, nil, err
	case <-s.intake.lost:
		return nil, nil, s.intake.srcErr
	case <-hard.Done():
		return nil, nil, s.cut()
	}
	var partial *sink.FailedError
	if err != nil && !errors.As(err, &partial) {
		return nil, nil, err
	}
	var rest []undelivered
	var cause *sink.Failure
	failed := 0
	for i := range run {
		if partial == nil || failed == len(partial.Failures) || partial.Failures[failed].Index != i {
			run[i].p.f.acknowledged(run[i].p.records[run[i].index : run[i].index+1])
			d.durable(run[i].p)
			continue
		}
		f := &partial.Failures[failed]
		failed++
		if errors.Is(f.Err, sink.ErrClosed) {
			return nil, nil, f.Err
		}
		if cause == nil || errors.Is(cause.Err, sink.ErrHalted) {
			cause = f
		}
		rest = append(rest, run[i])
	}
	return cause, rest, nil
}

// durable counts one record of a failed piece; the last one finishes the piece.
func (d *atLeastOnce) durable(p *piece) {
	if p.left--; p.left == 0 {
		p.f.finish()
	}
}

// guilty reports a record that failed alone and waits before it is tried again.
func (d *atLeastOnce) guilty(ctx, hard context.Context, u *undelivered, f *sink.Failure, wait *backoff) error {
	s := d.s
	row := u.p.records[u.index].Row
	u.p.f.upToRow(row)
	err := &RowBlockedError{Reason: f.Reason, Err: f.Err}
	if row != nil {
		err.Table = row.Relation.Namespace + "." + row.Relation.Name
		err.LSN = row.LSN
		err.Commit, err.Ordinal = row.Place()
	}
	if row != nil && f.Class == sink.Rejected && s.r.cfg.OnReject == StopOnReject {
		err.Err = s.wayOut(err.Commit, f.Reason, err.Err)
	}
	if s.r.cfg.OnReject == DeadLetterOnReject && u.p.records[u.index].Topic == s.r.cfg.DeadLetterTopic {
		err.Err = setupMakes(f.Reason, err.Err)
	}
	if f.Class == sink.Rejected && !u.counted {
		u.counted = true
		s.reject(f.Reason, deadletter.Row{Commit: err.Commit, Seq: err.Ordinal}, err)
	}
	if s.r.ev.ProduceRetried != nil {
		s.r.ev.ProduceRetried(f.Reason)
	}
	if row != nil && f.Class != sink.Retry {
		s.r.board.BlockedAt(row, s.Lineage(), f.Reason, err)
	}
	return s.block(ctx, hard, f.Reason, err, f.Class != sink.Retry, wait.delay())
}

// hold waits at a row that the router cannot turn into a record, trying it again
// with back-off, while what was sent before it is brought to the brokers. The
// session ends, or the row and everything behind it in the flight is sent.
func (d *atLeastOnce) rejected(ctx, hard context.Context, f *flight, rejection error) error {
	s := d.s
	d.send(f)
	wait := backoff{min: s.r.cfg.RetryMin, max: s.r.cfg.RetryMax}
	for at, reached := -1, -1; rejection != nil; rejection = s.route(f) {
		if errors.Is(rejection, errUnsettled) {
			if err := d.settleFirst(ctx, hard, f); err != nil {
				return err
			}
			continue
		}
		reason := rejectionReason(rejection)
		if at != f.routed && !errors.Is(rejection, record.ErrBinary) {
			at = f.routed
			d.send(f)
			s.reject(reason, deadletter.RowOf(&f.batch.Rows[at]), rejection)
		}
		shown, row := rejection, &f.batch.Rows[f.routed]
		show := func(way error) {
			shown = way
			s.r.board.BlockedAt(row, s.Lineage(), reason, shown)
			s.r.board.SetBlocked(reason, shown)
		}
		switch {
		case errors.Is(rejection, record.ErrBinary): // the next session gets past it
		case reached == f.routed:
			show(s.wayOut(deadletter.RowOf(row).Commit, reason, rejection))
		default:
			show(s.letterWay(reason, rejection))
		}
		if err := s.quiesce(hard); err != nil {
			return err
		}
		if err := d.recover(ctx, hard); err != nil {
			return err
		}
		f.upTo(f.routed)
		if errors.Is(rejection, record.ErrBinary) {
			return rejection // the next session reads text
		}
		if reached != f.routed {
			reached = f.routed
			show(s.wayOut(deadletter.RowOf(row).Commit, reason, rejection))
		}
		if err := s.block(ctx, hard, reason, shown, true, wait.delay()); err != nil {
			return err
		}
	}
	d.send(f)
	s.r.board.ClearBlocked()
	return nil
}

// settleFirst brings what was routed of a flight, and all before it, to the brokers.
func (d *atLeastOnce) settleFirst(ctx, hard context.Context, f *flight) error {
	d.send(f)
	if err := d.s.quiesce(hard); err != nil {
		return err
	}
	if err := d.recover(ctx, hard); err != nil {
		return err
	}
	f.waited, f.durable = f.routed+1, f.sent
	return nil
}

// sentence is what becomes of a record that the brokers refused.
type sentence int

const (
	holdOn     sentence = iota // until somebody changed something
	sendLetter                 // the record was replaced by its dead letter
	skipRow                    // the record needs no delivery
)

// convict decides about a record that failed alone. A dead letter that is refused
// itself goes on with less of the record in it.
func (d *atLeastOnce) convict(u *undelivered, f *sink.Failure) sentence {
	s := d.s
	if f.Class != sink.Rejected || s.r.cfg.OnReject == StopOnReject {
		return holdOn
	}
	rec := &u.p.records[u.index]
	row := rec.Row
	cause := &RowBlockedError{
		Reason: f.Reason, Err: f.Err, Table: row.Relation.Namespace + "." + row.Relation.Name,
		LSN: row.LSN, Ordinal: row.Ordinal, Commit: deadletter.RowOf(row).Commit,
	}
	if rec.Topic == s.r.cfg.DeadLetterTopic {
		if !deadletter.Strip(rec) {
			return holdOn
		}
		s.r.log.Warn().Err(cause).Str("topic", rec.Topic).Msg("the dead-letter topic refuses the row too; it goes there with less of its record")
		return sendLetter
	}
	if s.r.cfg.OnReject == DeadLetterOnReject {
		if err := s.park(rec); err != nil {
			f.Reason, f.Err = ReasonParkedKeysFull, fmt.Errorf("%w; the row: %w", err, f.Err)
			return holdOn
		}
	}
	s.reject(f.Reason, deadletter.RowOf(row), cause)
	s.tell(f.Reason, row, cause)
	if s.r.cfg.OnReject == SkipOnReject {
		rec.Topic = ""
		u.p.f.skipped = true
		d.durable(u.p)
		return skipRow
	}
	*rec = s.letter(rec, f.Reason, cause)
	u.p.f.letters = append(u.p.f.letters, f.Reason)
	return sendLetter
}
