package handover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/rs/zerolog"
)

// occupyAgain is the pause before the slot is taken again.
const occupyAgain = 2 * time.Second

// Occupy streams from a slot and takes nothing, until ctx ends. So the slot is in use, which keeps
// it from idle_replication_slot_timeout, and others from it. It is no condition for anything: a
// slot that is not held holds the WAL all the same.
func Occupy(ctx context.Context, cfg postgres.Config, log zerolog.Logger) {
	for ctx.Err() == nil {
		s, err := replication.Open(ctx, cfg, replication.Options{}, zerolog.Nop())
		if err == nil {
			start := s.StartLSN()
			stopped := context.AfterFunc(ctx, s.Abort)
			err = s.Run(ctx, make(chan *wal.Batch), func() wal.LSN { return start })
			stopped()
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			_ = s.Close(ending, start) // nothing was confirmed
			cancel()
		}
		if ctx.Err() == nil {
			log.Warn().Err(err).Msg("the slot is not held; trying again")
		}
		select {
		case <-time.After(occupyAgain):
		case <-ctx.Done():
		}
	}
}

// dropPatience is how long the server may take to end the connection that holds the slot.
const dropPatience = 15 * time.Second

// Drop drops a slot that nobody streams from any more.
func Drop(ctx context.Context, holder *snapshot.Holder, name string) error {
	return WhenFree(ctx, func() error {
		return holder.Ask(ctx, func(q postgres.Querier, _ int) error { return provision.DropSlot(q, name) })
	})
}

// ReadSlots reads slots, of which the first is a command's own. locked: the caller has the command's lock, so
// whoever still uses that slot is an earlier call whose connection the server has not ended; it is waited for.
func ReadSlots(ctx context.Context, holder *snapshot.Holder, locked bool, names ...string) (slots []provision.SlotState, err error) {
	for deadline := time.Now().Add(dropPatience); ; {
		err = holder.Ask(ctx, func(q postgres.Querier, version int) (err error) {
			if slots, err = provision.ReadSlots(q, version, names...); err != nil {
				return err
			}
			return refuseAhead(q, slots)
		})
		if err != nil || !locked || !slots[0].Active || time.Now().After(deadline) {
			return slots, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// refuseAhead gives slots an error that are ahead of the end of the server's WAL: they would never send the rows
// that commit in between.
func refuseAhead(q postgres.Querier, slots []provision.SlotState) error {
	end, err := postgres.WALInserted(q)
	if err != nil {
		return err
	}
	for i := range slots {
		if s := &slots[i]; s.Exists && s.Err == nil && s.Confirmed > end {
			s.Err = &fault.Error{
				Kind: fault.KindDrift, Reason: fault.ReasonSlotMoved, Op: "look at", Subject: postgres.SlotSubject(s.Name),
				Err: fmt.Errorf("the slot is confirmed up to %s, and the server's WAL ends at %s: the server lost WAL, or somebody confirmed what was not there", s.Confirmed, end),
			}
		}
	}
	return nil
}

// WhenFree tries again while the server has not ended the connection that held a slot.
func WhenFree(ctx context.Context, try func() error) error {
	for deadline := time.Now().Add(dropPatience); ; {
		err := try()
		if err == nil || postgres.KindOf(err) != fault.KindBusy || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Peek reads a slot from its beginning to a position, and confirms nothing. take may keep nothing
// of a batch. It is asked no more once it returned an error.
func Peek(ctx context.Context, cfg postgres.Config, maxRowBytes int, end wal.LSN, take func(*wal.Batch) error) error {
	s, err := replication.Open(ctx, cfg, replication.Options{MaxRowBytes: maxRowBytes, Until: end}, zerolog.Nop())
	if err != nil {
		return err
	}
	start := s.StartLSN()
	defer func() { _ = s.Close(context.WithoutCancel(ctx), start) }()
	defer context.AfterFunc(ctx, s.Abort)()
	out, ended := make(chan *wal.Batch), make(chan error, 1)
	go func() {
		ended <- s.Run(ctx, out, func() wal.LSN { return start })
		close(out)
	}()
	var failed error
	for b := range out {
		if failed == nil {
			if failed = take(b); failed != nil {
				s.Abort()
			}
		}
		b.Release()
	}
	if err = <-ended; failed != nil || ctx.Err() != nil {
		return errors.Join(failed, ctx.Err())
	}
	return err
}
