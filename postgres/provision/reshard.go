package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// DroppedSlot is the Object of a Step that took a slot away.
const DroppedSlot = "dropped slot"

// ReshardOptions says how a change of the number of shards continues.
type ReshardOptions struct {
	// Columns is as in SetupOptions.
	Columns func(*wal.Relation) ([]string, error)

	// OnStep, when set, is called for each step once it is durable.
	OnStep func(Step)

	// OnWait, when set, is called once for each thing that somebody else has to do.
	OnWait func(text string)

	// BeforeDrop, when set, is called once all new slots exist, and all old ones still do.
	BeforeDrop func()

	// Wait bounds the waits. Zero waits as long as the context lets it.
	Wait time.Duration
}

// Reshard replaces the slots of `from` shards by those that cfg names. It is safe to
// end it at any moment and to run it again.
//
// Why no row is lost, and none overtakes an earlier one of its key:
//
//  1. The new publications are made while the old slots are streamed from. The stream
//     looks a publication up as of each row's WAL position, so the transactions of that
//     moment have to end, and the old slots have to be confirmed past them.
//  2. The old relay is stopped. Of the old slots, the least confirmed position is S:
//     every old shard has delivered every row that committed before S.
//  3. Each new slot is a copy of the slot at S, so it has every row of its shard that
//     committed from S on. Rows between S and another old slot's position come twice,
//     as after a restart: the whole rest of each key from S on, in order.
//  4. The old slots are dropped, and with them the way back. As long as slots of two
//     generations exist no relay starts (see catalog.OnlyGeneration), so no row is sent by both at
//     the same time.
//
// The new slots are not streamed from before step 4 is complete, so a run that was cut
// short may make them anew.
func Reshard(ctx context.Context, cfg postgres.Config, from int, opt ReshardOptions) (*SetupReport, error) {
	if err := postgres.CheckNames(cfg); err != nil {
		return nil, err
	}
	if from < 1 || from > postgres.MaxShards || from == max(1, cfg.Shard.Count) {
		return nil, &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: "change the number of shards",
			Err: fmt.Errorf("cannot change from %d to %d shards; allowed: from 1 to %d, and another number than postgres.shards", from, max(1, cfg.Shard.Count), postgres.MaxShards)}
	}
	conn, err := postgres.Connect(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	defer postgres.CloseQuietly(conn)
	r := &resharding{setup: newSetup(ctx, conn, cfg, SetupOptions{Columns: opt.Columns, OnStep: opt.OnStep}), from: from, wait: opt}
	if opt.Wait > 0 {
		r.deadline = time.Now().Add(opt.Wait)
	}
	err = r.run()
	r.report.Warnings = append(r.report.Warnings, r.server.Warnings...)
	return r.report, err
}

type resharding struct {
	*setup
	from     int
	wait     ReshardOptions
	deadline time.Time // zero: none

	old, new []catalog.ShardSlot
}

func (r *resharding) run() error {
	if err := r.server.ReadSettings(r.q); err != nil {
		return err
	}
	if err := r.server.CheckDecoding(r.q); err != nil {
		return err
	}
	if r.cfg.Shard.Divided() {
		if err := catalog.NeedsFilters(r.server.ServerVersion); err != nil {
			return err
		}
	}
	if err := r.readSlots(); err != nil {
		return err
	}
	if len(r.new) == len(r.shards) {
		if err := r.areCopies(); err != nil {
			return err
		}
		return r.finish()
	}
	if len(r.old) != r.from {
		return r.refuse(fmt.Errorf("%d of %s of %s exist, and %d of the %d new ones", len(r.old), wording.Count(r.from, "slot"), wording.Count(r.from, "shard"), len(r.new), len(r.shards)),
			"give the number that the relay ran with until now; if slots were dropped by hand, send the rows since then again (`cdc-relay replay`): "+postgres.SeeSendingAgain)
	}
	// Copies of an earlier run keep the old relay from going on until it is caught up.
	if err := r.dropAll(r.new); err != nil {
		return err
	}
	if err := r.hasRoom(); err != nil {
		return err
	}
	if err := r.publish(); err != nil {
		return err
	}
	if err := r.awaitOldSlots(); err != nil {
		return err
	}
	if err := r.replace(); err != nil {
		return err
	}
	return r.finish()
}

// readSlots reads the slots of both generations, and refuses a third.
func (r *resharding) readSlots() error {
	slots, err := catalog.ShardSlots(r.q, r.server.ServerVersion, r.cfg.Shard.Slot)
	if err != nil {
		return err
	}
	r.old, r.new = nil, nil
	for _, s := range slots {
		switch s.Count {
		case r.from:
			r.old = append(r.old, s)
		case max(1, r.cfg.Shard.Count):
			r.new = append(r.new, s)
		default:
			return r.refuse(fmt.Errorf("%s is one of %s", postgres.SlotSubject(s.Name), wording.Count(s.Count, "shard")), "find out which slots the relay streams from, and drop the others")
		}
	}
	for _, s := range r.old {
		if err := s.Usable(s.Name); err != nil {
			return err
		}
	}
	return nil
}

func (r *resharding) refuse(cause error, hint string) error {
	return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonShards, Op: "change the number of shards", Err: cause, Hint: hint}
}

// publish makes the new publications.
func (r *resharding) publish() error {
	if err := r.planPublications(); err != nil {
		return err
	}
	if slices.ContainsFunc(r.tables, func(s Step) bool { return !s.Exists }) {
		return r.refuse(errors.New("a table does not exist"), "correct outbox")
	}
	return r.applyTransaction()
}

// awaitWriters waits for the transactions that may have written rows before the publications
// were there: such a row is decoded without them, however late its commit is. The
// creation of a slot waits for the same.
func (r *resharding) awaitWriters() error {
	began, err := catalog.OpenTransactions(r.q)
	if err != nil {
		return err
	}
	var failed error
	err = r.await(func() (string, bool) {
		ended, err := catalog.HaveEnded(r.q, began)
		failed = err
		if err != nil || ended {
			return "", true
		}
		return "transactions that began before the new publications have to end: " + catalog.Blockers(r.q), false
	})
	return errors.Join(err, failed)
}

// awaitOldSlots waits until the old slots have seen the new publications and are released.
func (r *resharding) awaitOldSlots() error {
	if err := r.awaitWriters(); err != nil {
		return err
	}
	made, err := postgres.WALInserted(r.q)
	if err != nil {
		return err
	}
	err = r.await(func() (string, bool) {
		behind := leastConfirmed(r.old)
		idle := ""
		if i := slices.IndexFunc(r.old, func(s catalog.ShardSlot) bool { return !s.Active }); i >= 0 {
			idle = fmt.Sprintf("; nobody streams from %s: start that relay, again if it is stopped already", postgres.SlotSubject(r.old[i].Name))
		}
		return fmt.Sprintf("the relay with %s has to stream until %s is confirmed past %s, where the new publications exist; it is at %s%s", wording.Count(r.from, "shard"), postgres.SlotSubject(behind.Name), made, behind.Confirmed, idle),
			behind.Confirmed >= made
	})
	if err != nil {
		return err
	}
	return r.await(func() (string, bool) {
		i := slices.IndexFunc(r.old, func(s catalog.ShardSlot) bool { return s.Active })
		if i < 0 {
			return "", true
		}
		return fmt.Sprintf("stop every relay with %s: %s is streamed from", wording.Count(r.from, "shard"), postgres.SlotSubject(r.old[i].Name)), false
	})
}

// await looks at the slots until holds says so.
func (r *resharding) await(holds func() (what string, ok bool)) error {
	said := false
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		what, ok := holds()
		if ok {
			return nil
		}
		if !said && r.wait.OnWait != nil {
			said = true
			r.wait.OnWait(what)
		}
		if !r.deadline.IsZero() && time.Now().After(r.deadline) {
			return r.refuse(errors.New(what), "then run the command again: nothing is lost, and the relay may continue with the old number until then")
		}
		select {
		case <-tick.C:
		case <-r.q.Ctx.Done():
			return r.q.Ctx.Err()
		}
		if err := r.readSlots(); err != nil {
			return err
		}
		if len(r.old) != r.from {
			return r.refuse(errors.New("a slot was dropped meanwhile"), "find out who did that, and send the rows since then again (`cdc-relay replay`): "+postgres.SeeSendingAgain)
		}
	}
}

// replace makes the new slots. Somebody who streams from an old one meanwhile was not
// stopped by catalog.OnlyGeneration, as he looked before the first copy was there: then the
// copies are of no use.
func (r *resharding) replace() error {
	before, source := positions(r.old), leastConfirmed(r.old)
	for i, shard := range r.shards {
		step := Step{Object: "slot", Name: shard.cfg.Slot, SQL: copySlot(source.Name, shard.cfg.Slot)}
		if err := r.q.Exec(step.SQL); err != nil {
			err = postgres.PermissionHint(postgres.Classify("create "+step.Subject(), err), "run it as a role with REPLICATION")
			return errors.Join(err, r.undo())
		}
		r.warn(copyFailover(r.q, r.cfg, r.server.ServerVersion, source.Name, step.Name))
		r.shards[i].slot = step
		r.done(step)
	}
	if err := r.readSlots(); err != nil {
		return err
	}
	if slices.Equal(before, positions(r.old)) && !slices.ContainsFunc(r.old, func(s catalog.ShardSlot) bool { return s.Active }) {
		return nil
	}
	if err := r.undo(); err != nil {
		return err
	}
	return r.refuse(fmt.Errorf("a relay with %s was started meanwhile", wording.Count(r.from, "shard")), "stop it, and run the command again")
}

// undo drops the copies, so that the relay with the old number may go on.
func (r *resharding) undo() error {
	if err := r.readSlots(); err != nil {
		return err
	}
	return r.dropAll(r.new)
}

// hasRoom refuses a server without slots for the copies, before anybody stops a relay.
func (r *resharding) hasRoom() error {
	row, err := r.q.One(`SELECT current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_catalog.pg_replication_slots)`)
	if err != nil {
		return postgres.Classify("count the slots", err)
	}
	free := row.Int("max_replication_slots", 0)
	if row.Err != nil || free >= len(r.shards) {
		return row.Err
	}
	return r.refuse(fmt.Errorf("%s free, and %d needed in addition to the old ones", wording.Count(free, "slot"), len(r.shards)), "raise max_replication_slots and restart the server; nothing was changed, and the relay may continue")
}

func positions(slots []catalog.ShardSlot) []wal.LSN {
	all := make([]wal.LSN, len(slots))
	for i, s := range slots {
		all[i] = s.Confirmed
	}
	return all
}

func (r *resharding) dropAll(slots []catalog.ShardSlot) error {
	for _, s := range slots {
		if err := r.q.Exec(DropSlotSQL(s.Name)); err != nil {
			return postgres.PermissionHint(postgres.Classify("drop "+postgres.SlotSubject(s.Name), err), "run it as a role with REPLICATION")
		}
	}
	return nil
}

// DropSlotSQL is for a slot that nobody streams from.
func DropSlotSQL(name string) string {
	return fmt.Sprintf("SELECT pg_catalog.pg_drop_replication_slot(%s)", postgres.QuoteLiteral(name))
}

// areCopies refuses new slots that begin behind an old one: nobody but this command makes slots that
// have what the old ones still have to deliver. A copy stands where the least of the old slots stood,
// and no relay streams while both are there.
func (r *resharding) areCopies() error {
	for _, s := range r.new {
		for _, old := range r.old {
			if s.Confirmed > old.Confirmed {
				return r.refuse(fmt.Errorf("%s begins at %s, and %s has rows from %s on: it is no copy of the old slots", postgres.SlotSubject(s.Name), s.Confirmed, postgres.SlotSubject(old.Name), old.Confirmed),
					"drop the new slots and run the command again, which copies the old ones; nothing was changed")
			}
		}
	}
	return nil
}

// finish drops the old slots: all new ones exist. The server refuses to drop one that
// is streamed from.
func (r *resharding) finish() error {
	for _, s := range r.old {
		if s.Active {
			return r.refuse(fmt.Errorf("%s is streamed from", postgres.SlotSubject(s.Name)), "stop that relay, and run the command again")
		}
	}
	if r.wait.BeforeDrop != nil && len(r.old) == r.from {
		r.wait.BeforeDrop()
	}
	for _, s := range r.old {
		if err := r.q.Exec(DropSlotSQL(s.Name)); err != nil {
			return postgres.PermissionHint(postgres.Classify("drop "+postgres.SlotSubject(s.Name), err), "run it as a role with REPLICATION, once nobody streams from the slot")
		}
		r.done(Step{Object: DroppedSlot, Name: s.Name, SQL: DropSlotSQL(s.Name)})
	}
	left, err := r.leftPublications()
	if err != nil || len(left) == 0 {
		return err
	}
	r.warn(fmt.Sprintf("publications of the former shards are no longer used; their owner may drop them: DROP PUBLICATION %s", strings.Join(left, ", ")))
	return nil
}

func (r *resharding) leftPublications() (left []string, err error) {
	for i := range r.from {
		name := postgres.ShardName(r.cfg.Shard.Publication, r.from, i)
		_, err := catalog.ReadPublication(r.q, r.server.ServerVersion, name)
		if postgres.Reason(err) == fault.ReasonPublicationMissing {
			continue
		}
		if err != nil {
			return nil, err
		}
		left = append(left, wal.QuoteIdentifier(name))
	}
	return left, nil
}
