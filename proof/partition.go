package proof

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
)

// Part is one connection to the primary, and a partition that it may lock and remove. Once the
// connection is lost, every method fails.
type Part interface {
	Looker

	// Nudge is Session's, over another connection: the transaction of this one is open.
	Nudge(ctx context.Context) error

	// Lock begins a transaction and waits until every writer of the partition has ended; no new
	// one begins before Remove or Release.
	Lock(ctx context.Context) error

	// Holds reports whether a row of the partition may be one that a dead letter waits for.
	Holds(ctx context.Context, waiting Waiting) (bool, error)

	// Remove takes the partition away, and commits.
	Remove(ctx context.Context) error

	// Release rolls back what is not committed.
	Release()
}

// lockedWait is how long writers of a partition that is locked wait for the slots, and then for the
// brokers. The lock itself writes WAL, which a quiet server does not flush: after lockedNudge the end
// of its WAL is moved.
const (
	lockedWait  = 5 * time.Second
	lockedPoll  = 20 * time.Millisecond
	lockedNudge = 40 * time.Millisecond
)

// Remove proves that all rows of a partition are delivered, and removes it. held: a dead letter
// of one of its rows waits, or of any row, and the partition stays whole.
//
// The lock takes the place of naming rows. Whoever wrote into the partition has ended, and its
// commit record is in the WAL; so all rows, seen or not, end at or before the insert position that
// is read after the lock. Nobody adds one until the partition is gone. The first wait, without
// the lock, keeps writers from waiting for a relay that is behind.
func (p *Prover) Remove(ctx context.Context, s Part) (held bool, err error) {
	if err := p.cfg.refuseSkipped(); err != nil {
		return false, err
	}
	fence, err := s.Fence(ctx)
	if err != nil {
		return false, err
	}
	if _, err := p.Await(ctx, s, fence); err != nil {
		return false, err
	}
	defer s.Release()
	if err := s.Lock(ctx); err != nil {
		return false, err
	}
	if fence, err = s.Fence(ctx); err != nil { // after the lock
		return false, err
	}
	short := *p
	short.cfg.Wait, short.cfg.Poll, short.cfg.NudgeAfter = min(p.cfg.Wait, lockedWait), min(p.cfg.Poll, lockedPoll), min(p.cfg.NudgeAfter, lockedNudge)
	slots, err := short.Await(ctx, s, fence)
	if err != nil {
		return false, busy(err)
	}
	waiting, err := p.readKeptSoon(ctx, s, slots)
	if err != nil {
		return false, err
	}
	if held, err = s.Holds(ctx, waiting); held || err != nil {
		return held, err
	}
	return false, s.Remove(ctx)
}

// readKeptSoon is readKept while writers wait: brokers that do not answer do not hold them up for long.
func (p *Prover) readKeptSoon(ctx context.Context, s Looker, slots []Slot) (Waiting, error) {
	within, cancel := context.WithTimeout(ctx, lockedWait)
	defer cancel()
	waiting, err := p.readKept(within, s, slots)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = &fault.Error{
			Kind: fault.KindRetry, Reason: fault.ReasonPartitionBusy, Op: "prove rows delivered",
			Err: fmt.Errorf("the brokers did not answer within %s, and writers of the partition would have to wait", lockedWait), Hint: "it is tried again",
		}
	}
	return waiting, err
}

// busy is a slot that was not quick enough for writers that wait.
func busy(err error) error {
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Reason == fault.ReasonSlotBehind {
		e.Reason = fault.ReasonPartitionBusy
	}
	return err
}
