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
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// atLeastOnce retries in memory, inside the session: what is durable is never sent twice,
// and what failed is sent again in the order of the stream.
type atLeastOnce struct{ d *Delivery }

func (g *atLeastOnce) Rules() Rules                           { return Rules{Repeats: true, Growth: 4} }
func (g *atLeastOnce) covers(*wal.Row) bool                   { return false }
func (g *atLeastOnce) replace(*InFlight, int, *wal.Row) error { return nil }
func (g *atLeastOnce) Pass(wal.LSN)                           {}
func (g *atLeastOnce) MakeRoom()                              {}
func (g *atLeastOnce) Renewal() (<-chan time.Time, func())    { return nil, func() {} }
func (g *atLeastOnce) Renew()                                 {}
func (g *atLeastOnce) Finish()                                {}
func (g *atLeastOnce) Limit(lsn uint64) uint64                { return lsn }

func (g *atLeastOnce) Unreadable(_, _ context.Context, cause error) error { return cause }

// send waits when the sink has no room, and for the brokers to say where a topic's
// partitions are.
func (g *atLeastOnce) send(f *InFlight) {
	if records := g.d.placed(f.buf.Records[f.sent:]); len(records) > 0 {
		g.d.follow(f, records)
		g.d.hand(f, records)
	}
}

// ended remembers the part of an open transaction that is delivered (fragment). The
// tracker alone knows that nothing which was taken is missing: what failed may be in
// the hands of a recovery that was cut short.
func (g *atLeastOnce) Close(cause error) {
	d := g.d
	if cause == nil || postgres.KindOf(cause) != fault.KindProtocol {
		return
	}
	if last, open := d.s.Last(); open && d.tracker.Stats().Rows == 0 {
		d.m.part.last = last
	}
}

// toRepeat counts rows that are acknowledged and may not be confirmed, because they belong to
// a transaction of which a row is not, or lie behind one.
func (g *atLeastOnce) ToRepeat(stats checkpoint.Stats) int {
	return stats.Done + max(0, int(g.d.shown.repeats.Load()))
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
func (g *atLeastOnce) Recover(ctx, hard context.Context) error {
	d := g.d
	if !d.Failed() && !d.sends.stumbled.Load() {
		return nil
	}
	if err := d.s.Ended(); err != nil {
		return err
	}
	if err := d.quiesce(hard); err != nil {
		return err
	}
	d.sends.stumbled.Store(false)
	queue, err := g.collect()
	if err != nil {
		return err
	}
	d.sink.Resume()
	d.Backlog(false) // what is tried alone has nothing to wait for
	wait := Backoff{Min: d.m.cfg.RetryMin, Max: d.m.cfg.RetryMax}
	for run := 1; len(queue) > 0; {
		d.followAll(queue)
		n := min(run, len(queue))
		failure, rest, err := g.resend(hard, queue[:n])
		if err != nil {
			return err
		}
		queue = append(rest, queue[n:]...)
		if failure == nil {
			run = min(2*run, maxResend)
			wait.Reset()
			d.m.board.ClearBlocked()
			continue
		}
		run = 1
		d.sink.Resume()
		if n > 1 {
			continue
		}
		switch g.convict(&queue[0], failure) {
		case sendLetter:
			continue
		case skipRow:
			queue = queue[1:]
			continue
		case holdOn:
		}
		if err := g.guilty(ctx, hard, &queue[0], failure, &wait); err != nil {
			return err
		}
	}
	d.m.board.ClearBlocked()
	return nil
}

// collect lists the failed records in the order of the stream.
func (g *atLeastOnce) collect() ([]undelivered, error) {
	d := g.d
	d.sends.mu.Lock()
	failed := d.sends.failed
	d.sends.failed = nil
	d.sends.mu.Unlock()
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
func (g *atLeastOnce) resend(hard context.Context, run []undelivered) (*sink.Failure, []undelivered, error) {
	d := g.d
	records := make([]record.Record, len(run))
	for i, u := range run {
		records[i] = u.p.records[u.index]
	}
	var err error // written before answered is closed
	answered := make(chan struct{})
	d.give(records, func(outcome error) {
		err = outcome
		close(answered)
		d.sent()
	})
	if ended := d.s.Wait(hard, answered); ended != nil {
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
			run[i].p.f.acknowledged(run[i].p.records[run[i].index : run[i].index+1])
			g.durable(run[i].p)
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
func (g *atLeastOnce) durable(p *piece) {
	if p.left--; p.left == 0 {
		p.f.finish()
	}
}

// guilty reports a record that failed alone and waits before it is tried again.
func (g *atLeastOnce) guilty(ctx, hard context.Context, u *undelivered, f *sink.Failure, wait *Backoff) error {
	d := g.d
	row := u.p.records[u.index].Row
	u.p.f.upToRow(row)
	err := &RowBlockedError{Reason: f.Reason, Err: f.Err}
	if row != nil {
		err.Table = row.Relation.Namespace + "." + row.Relation.Name
		err.LSN = row.LSN
		err.Commit, err.Ordinal = row.Place()
	}
	if row != nil && f.Class == sink.Rejected && d.m.cfg.OnReject == StopOnReject {
		err.Err = d.wayOut(err.Commit, f.Reason, err.Err)
	}
	if d.m.cfg.OnReject == DeadLetterOnReject && u.p.records[u.index].Topic == d.m.cfg.DeadLetterTopic {
		err.Err = setupMakes(f.Reason, err.Err)
	}
	if f.Class == sink.Rejected && !u.counted {
		u.counted = true
		d.m.Rejected.Reject(f.Reason, deadletter.Row{Commit: err.Commit, Seq: err.Ordinal}, err)
	}
	if d.m.ev.ProduceRetried != nil {
		d.m.ev.ProduceRetried(f.Reason)
	}
	if row != nil && f.Class != sink.Retry {
		d.m.board.BlockedAt(row, d.Lineage(), f.Reason, err)
	}
	return d.s.Block(ctx, hard, f.Reason, err, f.Class != sink.Retry, wait.Delay())
}

// hold waits at a row that the router cannot turn into a record, trying it again
// with back-off, while what was sent before it is brought to the brokers. The
// session ends, or the row and everything behind it in the flight is sent.
func (g *atLeastOnce) rejected(ctx, hard context.Context, f *InFlight, rejection error) error {
	d := g.d
	g.send(f)
	wait := Backoff{Min: d.m.cfg.RetryMin, Max: d.m.cfg.RetryMax}
	for at, reached := -1, -1; rejection != nil; rejection = d.Route(f) {
		if errors.Is(rejection, errUnsettled) {
			if err := g.settleFirst(ctx, hard, f); err != nil {
				return err
			}
			continue
		}
		reason := rejectionReason(rejection)
		if at != f.routed && !errors.Is(rejection, record.ErrBinary) {
			at = f.routed
			g.send(f)
			d.m.Rejected.Reject(reason, deadletter.RowOf(&f.batch.Rows[at]), rejection)
		}
		shown, row := rejection, &f.batch.Rows[f.routed]
		show := func(way error) {
			shown = way
			d.m.board.BlockedAt(row, d.Lineage(), reason, shown)
			d.m.board.SetBlocked(reason, shown)
		}
		switch {
		case errors.Is(rejection, record.ErrBinary): // the next session gets past it
		case reached == f.routed:
			show(d.wayOut(deadletter.RowOf(row).Commit, reason, rejection))
		default:
			show(d.letterWay(reason, rejection))
		}
		if err := d.quiesce(hard); err != nil {
			return err
		}
		if err := g.Recover(ctx, hard); err != nil {
			return err
		}
		f.upTo(f.routed)
		if errors.Is(rejection, record.ErrBinary) {
			return rejection // the next session reads text
		}
		if reached != f.routed {
			reached = f.routed
			show(d.wayOut(deadletter.RowOf(row).Commit, reason, rejection))
		}
		if err := d.s.Block(ctx, hard, reason, shown, true, wait.Delay()); err != nil {
			return err
		}
	}
	g.send(f)
	d.m.board.ClearBlocked()
	return nil
}

// settleFirst brings what was routed of a flight, and all before it, to the brokers.
func (g *atLeastOnce) settleFirst(ctx, hard context.Context, f *InFlight) error {
	g.send(f)
	if err := g.d.quiesce(hard); err != nil {
		return err
	}
	if err := g.Recover(ctx, hard); err != nil {
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
func (g *atLeastOnce) convict(u *undelivered, f *sink.Failure) sentence {
	d := g.d
	if f.Class != sink.Rejected || d.m.cfg.OnReject == StopOnReject {
		return holdOn
	}
	rec := &u.p.records[u.index]
	row := rec.Row
	cause := &RowBlockedError{
		Reason: f.Reason, Err: f.Err, Table: row.Relation.Namespace + "." + row.Relation.Name,
		LSN: row.LSN, Ordinal: row.Ordinal, Commit: deadletter.RowOf(row).Commit,
	}
	if rec.Topic == d.m.cfg.DeadLetterTopic {
		if !deadletter.Strip(rec) {
			return holdOn
		}
		d.m.log.Warn().Err(cause).Str("topic", rec.Topic).Msg("the dead-letter topic refuses the row too; it goes there with less of its record")
		return sendLetter
	}
	if d.m.cfg.OnReject == DeadLetterOnReject {
		if err := d.park(rec); err != nil {
			f.Reason, f.Err = rejected.ReasonParkedKeysFull, fmt.Errorf("%w; the row: %w", err, f.Err)
			return holdOn
		}
	}
	d.m.Rejected.Reject(f.Reason, deadletter.RowOf(row), cause)
	d.m.Rejected.Aside(f.Reason, row, cause)
	if d.m.cfg.OnReject == SkipOnReject {
		rec.Topic = ""
		u.p.f.skipped = true
		g.durable(u.p)
		return skipRow
	}
	*rec = d.letter(rec, f.Reason, cause)
	u.p.f.letters = append(u.p.f.letters, f.Reason)
	return sendLetter
}
