package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/relay/retry"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/schemas"
	"github.com/cdc-relay/cdc-relay/sink"
)

// atLeastOnce retries in memory, inside the session: what is durable is never sent twice,
// and what failed is sent again in the order of the stream.
type atLeastOnce struct{ delivery *Delivery }

func (g *atLeastOnce) Rules() Rules                        { return Rules{Repeats: true} }
func (g *atLeastOnce) covers(*wal.Row) bool                { return false }
func (g *atLeastOnce) follow(*wal.Batch) error             { return nil }
func (g *atLeastOnce) Pass(wal.LSN)                        {}
func (g *atLeastOnce) MakeRoom()                           {}
func (g *atLeastOnce) Renewal() (<-chan time.Time, func()) { return nil, func() {} }
func (g *atLeastOnce) Renew()                              {}
func (g *atLeastOnce) Finish()                             {}
func (g *atLeastOnce) Limit(lsn wal.LSN) wal.LSN           { return lsn }

func (g *atLeastOnce) Unreadable(_, _ context.Context, cause error) error { return cause }

// replace replaces no record. It stops the routing at a row whose dead letter would be durable before
// repeated rows of its key.
func (g *atLeastOnce) replace(f *InFlight, n int, _ *wal.Row) error {
	if f.waitedFor != f.routed && g.delivery.shared.Letters.Overtake(g.delivery.start.Origin, f.buf.Records[n:]) {
		return errOvertakes
	}
	return nil
}

// send waits as long as the sink's Send does, such as for the partitions of a topic.
func (g *atLeastOnce) send(f *InFlight) {
	if records := g.delivery.withPosition(f.buf.Records[f.sent:]); len(records) > 0 {
		g.delivery.divertParked(f, records)
		g.delivery.sendRecords(f, records)
	}
}

// Close remembers the part of an open transaction that is delivered (resume.Partial). Only
// the tracker knows that every row which was taken is delivered: a recovery that was cut short
// may still have failed records. Close remembers nothing if the server refuses to read on
// (KindRefused, which ending.Unreadable includes): the publication may be the cause, and a corrected
// one may number the rows of the transaction differently.
func (g *atLeastOnce) Close(cause error) {
	d := g.delivery
	if cause == nil || postgres.KindOf(cause) != fault.KindProtocol && !errors.Is(cause, wal.ErrReadPast) {
		return
	}
	stats := d.tracker.Stats()
	if last, open := d.session.Last(); open && stats.Rows == 0 {
		d.shared.partial = resume.Partial{Last: last, Rows: g.ToRepeat(stats), After: d.tracker.Confirmable()}
	}
}

// ToRepeat counts acknowledged rows that the next start would send again, because a row of their
// transaction or of an earlier one is not acknowledged. Until this session has read as many, it is
// the number that the last session left (partialAtStart).
func (g *atLeastOnce) ToRepeat(stats checkpoint.Stats) int {
	return max(stats.Waiting+max(0, int(g.delivery.shown.unconfirmed.Load())), g.delivery.partialAtStart.Unconfirmed(g.delivery.tracker.Confirmable()))
}

// undelivered is one record that has to be sent again.
type undelivered struct {
	send    *send
	index   int
	counted bool // RowRejected ran for it
}

// maxResend is the largest run that is sent again after a failure.
const maxResend = 1024

// Recover brings every failed record to the brokers, in the order of the stream,
// and only those: what is durable is never sent twice.
//
// A failed record is not necessarily the one that the brokers reject: the client fails
// every record that it holds for the partition. So records are sent again in runs that start
// with one record and double while they succeed; a run that fails starts over with one. A
// rejected record is thus found when it fails alone; every record before it is delivered, and
// none after it overtakes.
func (g *atLeastOnce) Recover(ctx, deliveryCtx context.Context) error {
	d := g.delivery
	if !d.Failed() && !d.sends.heartbeatFailed.Load() {
		return nil
	}
	if err := d.session.TakeEnd(); err != nil {
		return err
	}
	if err := d.quiesce(deliveryCtx); err != nil {
		return err
	}
	d.sends.heartbeatFailed.Store(false)
	queue, err := g.collect()
	if err != nil {
		return err
	}
	if err := g.resume(deliveryCtx); err != nil {
		return err
	}
	d.SetBacklog(false) // runs of one record would wait for others in vain
	wait := retry.Backoff{Min: d.shared.cfg.RetryMin, Max: d.shared.cfg.RetryMax}
	for run := 1; len(queue) > 0; {
		d.divertQueued(queue)
		n := min(run, len(queue))
		failure, rest, err := g.resend(deliveryCtx, queue[:n])
		if err != nil {
			return err
		}
		queue = append(rest, queue[n:]...)
		if failure == nil {
			run = min(2*run, maxResend)
			wait.Reset()
			d.shared.monitor.ClearBlocked()
			continue
		}
		run = 1
		if err := g.resume(deliveryCtx); err != nil {
			return err
		}
		if n > 1 {
			continue
		}
		switch g.decide(&queue[0], failure) {
		case sendLetter:
			continue
		case skipRow:
			queue = queue[1:]
			continue
		case keepTrying:
		}
		if err := g.waitAtRecord(ctx, deliveryCtx, &queue[0], failure, &wait); err != nil {
			return err
		}
	}
	d.shared.monitor.ClearBlocked()
	return nil
}

// resume has the sink take records again, unless the session has to end by now. A lost slot halts
// the sink; resume would undo that, and what is sent then lands after newer records of another
// relay. The slot counts as lost before the sink is halted, so asking afterwards is enough.
func (g *atLeastOnce) resume(deliveryCtx context.Context) error {
	g.delivery.sink.Resume(g.delivery.session.Sending())
	if err := g.delivery.session.TakeEnd(); err != nil {
		return err
	}
	if deliveryCtx.Err() != nil {
		return g.delivery.session.DrainTimeout()
	}
	return nil
}

// collect lists the failed records in the order of the stream.
func (g *atLeastOnce) collect() ([]undelivered, error) {
	var queue []undelivered
	for _, f := range g.delivery.takeFailed() {
		var partial *sink.FailedError
		if !errors.As(f.err, &partial) {
			return nil, f.err
		}
		f.send.left = len(partial.Failures)
		next := 0
		for _, failure := range partial.Failures {
			f.send.acknowledged(f.send.records[next:failure.Index])
			next = failure.Index + 1
		}
		f.send.acknowledged(f.send.records[next:])
		for _, failure := range partial.Failures {
			if errors.Is(failure.Err, sink.ErrClosed) {
				return nil, failure.Err
			}
			queue = append(queue, undelivered{send: f.send, index: failure.Index})
		}
	}
	return queue, nil
}

// resend sends a run and waits for its outcome. It returns the first failure with a cause of
// its own, and the records of the run that are not durable.
func (g *atLeastOnce) resend(deliveryCtx context.Context, run []undelivered) (*sink.Failure, []undelivered, error) {
	d := g.delivery
	records := make([]record.Record, len(run))
	for i, u := range run {
		records[i] = u.send.records[u.index]
		d.shared.traces.HandOver(u.send.spans, records[i:i+1])
	}
	var err error // written before answered is closed
	answered := make(chan struct{})
	d.produce(records, func(outcome error) {
		err = outcome
		close(answered)
		d.answered()
	})
	if ended := d.session.Wait(deliveryCtx, answered); ended != nil {
		return nil, nil, ended
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
			run[i].send.acknowledged(run[i].send.records[run[i].index : run[i].index+1])
			g.countDurable(run[i].send)
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

// countDurable counts one record of a failed send; the last one finishes the send.
func (g *atLeastOnce) countDurable(s *send) {
	if s.left--; s.left == 0 {
		s.inFlight.countDown()
	}
}

// waitAtRecord shows the relay as blocked at a record that failed alone, and waits before the next
// try.
func (g *atLeastOnce) waitAtRecord(ctx, deliveryCtx context.Context, u *undelivered, f *sink.Failure, wait *retry.Backoff) error {
	d := g.delivery
	row := u.send.records[u.index].Row
	u.send.inFlight.confirmBeforeRow(row)
	err := rejected.NotDelivered(f.Reason, f.Err, row)
	if f.Class == sink.Rejected && d.shared.cfg.OnReject == StopOnReject {
		err.Err = d.shared.hints.Past(err.Commit, f.Reason, err.Err)
	}
	if d.shared.cfg.OnReject == DeadLetterOnReject && u.send.records[u.index].Topic == d.shared.cfg.DeadLetterTopic {
		err.Err = rejected.OnlyCopy(&u.send.records[u.index], f.Reason, rejected.SetupMakes(f.Reason, err.Err))
	}
	if f.Class == sink.Rejected && !u.counted {
		u.counted = true
		d.shared.Rejected.Reject(f.Reason, err.Table, err.Place, err)
	}
	if d.shared.ev.ProduceRetried != nil {
		d.shared.ev.ProduceRetried(f.Reason)
	}
	d.shared.traces.Failed(u.send.spans, &u.send.records[u.index], f.Class, f.Reason)
	if f.Class == sink.Retry {
		return d.session.Block(context.WithoutCancel(ctx), deliveryCtx, f.Reason, err, false, wait.Delay()) // a drain keeps trying
	}
	d.shared.monitor.BlockedAt(row, &u.send.records[u.index], d.Lineage(), f.Reason, err)
	return d.session.Block(ctx, deliveryCtx, f.Reason, err, true, wait.Delay())
}

// refusedByRouter blocks at a row that the router cannot turn into a record, and routes it again with
// back-off. Meanwhile everything before it is made durable. It ends the session, or returns
// when the row and everything after it in the batch is sent.
func (g *atLeastOnce) refusedByRouter(ctx, deliveryCtx context.Context, f *InFlight, refusal error) error {
	d := g.delivery
	wait := retry.Backoff{Min: d.shared.cfg.RetryMin, Max: d.shared.cfg.RetryMax}
	for last := -1; refusal != nil; refusal = d.Route(f) {
		g.send(f) // also what Route made of the rows up to this one: confirmBefore confirms them
		if errors.Is(refusal, errOvertakes) {
			if err := g.sendFirst(ctx, deliveryCtx, f); err != nil {
				return err
			}
			continue
		}
		if need, ok := errors.AsType[*schemas.Need](refusal); ok {
			if err := d.awaitSchema(ctx, deliveryCtx, f, need); err != nil {
				return err
			}
			continue
		}
		row, reason := &f.batch.Rows[f.routed], rejected.ReasonOf(refusal)
		id, binary := row.Place(), errors.Is(refusal, record.ErrBinary)
		show := func(cause error) {
			d.shared.monitor.BlockedAt(row, nil, d.Lineage(), reason, cause)
			d.shared.monitor.SetBlocked(reason, cause)
		}
		if last != f.routed && !binary {
			d.shared.Rejected.Reject(reason, row.Relation.Qualified(), id, refusal)
			show(d.shared.hints.DeadLetter(reason, refusal))
		}
		last = f.routed
		if err := d.settle(ctx, deliveryCtx); err != nil {
			return err
		}
		f.confirmBefore(f.routed)
		if binary {
			return refusal // the next session reads text
		}
		past := d.shared.hints.Past(id.Commit, reason, refusal)
		show(past)
		if err := d.session.Block(ctx, deliveryCtx, reason, past, true, wait.Delay()); err != nil {
			return err
		}
	}
	g.send(f)
	d.shared.monitor.ClearBlocked()
	return nil
}

// sendFirst makes everything durable that was routed before a row whose dead letter would
// overtake it.
func (g *atLeastOnce) sendFirst(ctx, deliveryCtx context.Context, f *InFlight) error {
	g.send(f)
	if err := g.delivery.settle(ctx, deliveryCtx); err != nil {
		return err
	}
	f.waitedFor, f.ackedUpTo = f.routed, f.sent
	if f.sent == len(f.buf.Records) && !g.delivery.Holding() { // held rows are sent later
		g.delivery.shared.Letters.Settled()
	}
	return nil
}

// decision is what happens next to a record that the brokers rejected.
type decision int

const (
	keepTrying decision = iota // later; the relay is blocked until then
	sendLetter                 // the record was replaced by its dead letter
	skipRow                    // the record needs no delivery
)

// decide applies relay.on_reject to a record that failed alone. A dead letter that is rejected
// itself is sent again with less of the record in it.
func (g *atLeastOnce) decide(u *undelivered, f *sink.Failure) decision {
	d := g.delivery
	if f.Class != sink.Rejected || d.shared.cfg.OnReject == StopOnReject {
		return keepTrying
	}
	rec := &u.send.records[u.index]
	row := rec.Row
	cause := rejected.NotDelivered(f.Reason, f.Err, row)
	if rec.Topic == d.shared.cfg.DeadLetterTopic {
		if !deadletter.Strip(rec) {
			return keepTrying
		}
		d.shared.log.Warn().Err(cause).Str("topic", rec.Topic).Msg("the dead letter is rejected too; sending a shorter dead letter")
		return sendLetter
	}
	if d.shared.cfg.OnReject == DeadLetterOnReject {
		if err := d.park(rec); err != nil {
			f.Reason, f.Err = fault.ReasonParkedKeysFull, fmt.Errorf("%w; the row: %w", err, f.Err)
			return keepTrying
		}
	}
	d.shared.Rejected.Reject(f.Reason, row.Relation.Qualified(), row.Place(), cause)
	d.shared.Rejected.Aside(f.Reason, row, cause)
	if d.shared.cfg.OnReject == SkipOnReject {
		d.shared.traces.Skipped(u.send.spans, rec, f.Reason)
		rec.Topic = ""
		u.send.inFlight.skipped = true
		g.countDurable(u.send)
		return skipRow
	}
	*rec = d.letter(rec, f.Reason, cause)
	u.send.inFlight.letterReasons = append(u.send.inFlight.letterReasons, f.Reason)
	return sendLetter
}
