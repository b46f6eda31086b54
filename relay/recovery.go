package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/jackc/pglogrepl"
)

// failedPiece is a Send of which some records are not durable.
type failedPiece struct {
	p   *piece
	err error
}

// undelivered is one record that has to be sent again.
type undelivered struct {
	p       *piece
	index   int
	counted bool // RowRejected ran for it
}

// maxResend bounds how many records one resend carries while failures are about.
const maxResend = 1024

func (s *session) hasFailed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failed) > 0
}

// recover brings every failed record to the brokers, in the order of the stream,
// and only those: what is durable is never sent twice.
//
// A failed record is not necessarily the guilty one, because the client fails
// whatever it holds for that partition. So records go again in runs that start
// with a single one and double while they succeed; a run that fails starts over
// with one. The guilty record is thus found when it fails alone, everything
// before it is delivered, and nothing after it overtakes.
func (s *session) recover(ctx, hard context.Context) error {
	if s.exactly != nil {
		return s.exactly.recover(ctx, hard)
	}
	if !s.hasFailed() && !s.stumbled.Load() {
		return nil
	}
	select {
	case <-s.lost:
		return s.srcErr
	case err := <-s.interrupts:
		return err
	default:
	}
	if err := s.quiesce(hard); err != nil {
		return err
	}
	s.stumbled.Store(false)
	queue, err := s.collect()
	if err != nil {
		return err
	}
	s.sink.Resume()
	s.fill(false) // what is tried alone has nothing to wait for
	wait := backoff{min: s.r.cfg.RetryMin, max: s.r.cfg.RetryMax}
	for run := 1; len(queue) > 0; {
		s.followAll(queue)
		n := min(run, len(queue))
		failure, rest, err := s.resend(hard, queue[:n])
		if err != nil {
			return err
		}
		queue = append(rest, queue[n:]...)
		if failure == nil {
			run = min(2*run, maxResend)
			wait.reset()
			s.r.clearBlocked()
			continue
		}
		run = 1
		s.sink.Resume()
		if n > 1 {
			continue
		}
		switch s.convict(&queue[0], failure) {
		case sendLetter:
			continue
		case skipRow:
			queue = queue[1:]
			continue
		case holdOn:
		}
		if err := s.guilty(ctx, hard, &queue[0], failure, &wait); err != nil {
			return err
		}
	}
	s.r.clearBlocked()
	return nil
}

// quiesce waits until every Send has called back: only then is it known what is
// durable.
func (s *session) quiesce(hard context.Context) error {
	for s.outstanding.Load() > 0 {
		select {
		case <-s.wake:
		case err := <-s.interrupts:
			return err
		case <-s.lost:
			return s.srcErr
		case <-hard.Done():
			return s.cut()
		}
	}
	return nil
}

// collect lists the failed records in the order of the stream.
func (s *session) collect() ([]undelivered, error) {
	s.mu.Lock()
	failed := s.failed
	s.failed = nil
	s.mu.Unlock()
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
func (s *session) resend(hard context.Context, run []undelivered) (*sink.Failure, []undelivered, error) {
	records := make([]router.Record, len(run))
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
	case <-s.lost:
		return nil, nil, s.srcErr
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
			s.durable(run[i].p)
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
func (s *session) durable(p *piece) {
	if p.left--; p.left == 0 {
		p.f.finish()
	}
}

// guilty reports a record that failed alone and waits before it is tried again.
func (s *session) guilty(ctx, hard context.Context, u *undelivered, f *sink.Failure, wait *backoff) error {
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
		s.obstruct(row, f.Reason, err)
	}
	return s.block(ctx, hard, f.Reason, err, f.Class != sink.Retry, wait.delay())
}

// hold waits at a row that the router cannot turn into a record, trying it again
// with back-off, while what was sent before it is brought to the brokers. The
// session ends, or the row and everything behind it in the flight is sent.
func (s *session) hold(ctx, hard context.Context, f *flight, rejection error) error {
	wait := backoff{min: s.r.cfg.RetryMin, max: s.r.cfg.RetryMax}
	for at, reached := -1, -1; rejection != nil; rejection = s.route(f) {
		reason := rejectionReason(rejection)
		if at != f.routed && !errors.Is(rejection, router.ErrBinary) {
			at = f.routed
			s.send(f)
			s.reject(reason, rowID(&f.batch.Rows[at]), rejection)
		}
		shown, row := rejection, &f.batch.Rows[f.routed]
		show := func(way error) {
			shown = way
			s.obstruct(row, reason, shown)
			s.r.setBlocked(reason, shown)
		}
		switch {
		case errors.Is(rejection, router.ErrBinary): // the next session gets past it
		case reached == f.routed:
			show(s.wayOut(rowID(row).Commit, reason, rejection))
		default:
			show(s.letterWay(reason, rejection))
		}
		if err := s.quiesce(hard); err != nil {
			return err
		}
		if err := s.recover(ctx, hard); err != nil {
			return err
		}
		f.upTo(f.routed)
		if errors.Is(rejection, router.ErrBinary) {
			return rejection // the next session reads text
		}
		if reached != f.routed {
			reached = f.routed
			show(s.wayOut(rowID(row).Commit, reason, rejection))
		}
		if err := s.block(ctx, hard, reason, shown, true, wait.delay()); err != nil {
			return err
		}
	}
	s.send(f)
	s.r.clearBlocked()
	return nil
}

// wayOut adds how to go on without the row, first what loses nothing. The server skips
// what commits before the position, so it has to lie behind the start of the commit
// record, and everything before the row has to be delivered.
func (s *session) wayOut(commit pglogrepl.LSN, reason string, cause error) error {
	cfg, then := &s.r.cfg, ""
	if cfg.KeepsPositions() { // else the slot would be ahead of its checkpoint
		then = ", then `cdc-relay setup --accept-gap`"
	}
	return fmt.Errorf("%w; to give up its whole transaction, stop the relay and run: SELECT %s('%s', '%s')%s",
		s.letterWay(reason, cause), moveSlot, cfg.Replication.Slot, commit+1, then)
}

const moveSlot = "pg_replication_slot_advance"

// letterWay adds the part of it that holds also while what lies before the row is not
// delivered yet.
func (s *session) letterWay(reason string, cause error) error {
	if s.r.cfg.OnReject != StopOnReject || reason == router.ReasonSchema { // see setAside
		return cause
	}
	return fmt.Errorf("%w; to have it kept as a dead letter, set relay.on_reject: dead_letter, run `cdc-relay setup` and restart", cause)
}

// upTo confirms the transactions that lie wholly before a row of the batch, once
// everything before that row is durable. Without it a row that blocks for long
// would have its neighbours sent again at every start.
func (f *flight) upTo(row int) {
	if row >= len(f.batch.Rows) {
		return
	}
	guilty := f.batch.Rows[row].Txn
	for i := row - 1; i >= 0; i-- {
		if t := f.batch.Rows[i].Txn; t != guilty && t.End != 0 {
			f.ticket.Partial(t.End, f.commitOf(i+1))
			f.settle(i)
			return
		}
	}
}

// settle counts the records of rows up to the i-th as ones that no start repeats.
func (f *flight) settle(i int) {
	last, n := rowID(&f.batch.Rows[i]), int64(0)
	for _, rec := range f.buf.Records {
		if rec.Topic != "" && !before(last, rowID(rec.Row)) {
			n++
		}
	}
	f.s.repeats.Add(f.settled.Swap(n) - n)
}

// upToRow is upTo for the row of the oldest record that is not durable.
func (f *flight) upToRow(row *replication.Row) {
	for i := range f.batch.Rows {
		if &f.batch.Rows[i] == row {
			f.upTo(i)
			return
		}
	}
}

// reject counts a row once, also when a later session comes to it again.
func (s *session) reject(reason string, row deadletter.Row, err error) {
	if s.r.seen.first(row) {
		s.r.rejected.Add(1)
		if s.r.ev.RowRejected != nil {
			s.r.ev.RowRejected(reason, err)
		}
	}
}

// block shows the relay as blocked and waits for d. It ends the session when the
// source is gone, and where only a person can help, when the operator stops the
// relay or wants it to exit. A drain goes on trying what may heal by itself.
func (s *session) block(ctx, hard context.Context, reason string, cause error, person bool, d time.Duration) error {
	if person && s.r.cfg.OnBlocked == ExitWhenBlocked {
		return &BlockedError{reason, cause}
	}
	s.r.setBlocked(reason, cause)
	stop := ctx.Done()
	if !person {
		stop = nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.lost:
		return s.srcErr
	case err := <-s.interrupts:
		return err
	case <-stop:
		return errStopped
	case <-hard.Done():
		return s.cut()
	}
}

// RowBlockedError is a record that the brokers refuse, and the row it comes from.
type RowBlockedError struct {
	Reason  string
	Table   string // schema.name
	LSN     pglogrepl.LSN
	Commit  pglogrepl.LSN // and Ordinal: replication.Row.Place
	Ordinal uint64
	Err     error
}

func (e *RowBlockedError) Error() string {
	return fmt.Sprintf("deliver row %d of the transaction committing at %s (%s, row LSN %s): %v", e.Ordinal, e.Commit, e.Table, e.LSN, e.Err)
}

func (e *RowBlockedError) Unwrap() error { return e.Err }
