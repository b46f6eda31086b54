package cutover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/wording"
)

// stopped sends what a publisher has left that has ended: a backfill of the rows without a mark.
// That is judged in the snapshot of the slot: a row that has a mark there was acknowledged before,
// and the slot has what commits after it.
func (w *work) stopped(ctx context.Context) error {
	if cut, err := w.state.cut(); err != nil {
		return err
	} else if cut != nil || w.state.temporary.Exists {
		return progress.Refuse(errors.New("a cutover from a publisher that runs on is under way, or complete"), "go on with `cdc-relay cutover --mark-new`")
	}
	b := backfill.Backfill{
		Settings: w.Settings, Prepare: w.Prepare, Out: w.Out, Log: w.Log, OnStep: w.OnStep,
		Options: backfill.Options{GoesOn: true, Yes: w.Options.Yes, AcceptOrder: w.Options.AcceptOrder, AcceptWAL: w.Options.AcceptWAL, SkipPresent: w.Options.SkipPresent, IDField: w.Options.IDField, Marks: w.Options.Marks},
	}
	if err := w.unused(ctx); err != nil {
		return err
	}
	if err := w.studyStopped(ctx); err != nil {
		return err
	}
	if err := w.decideGivenUp(false); err != nil && w.Options.Yes {
		return err
	}
	if !w.state.backfill { // else it was decided
		if err := w.decideDifference(ctx); err != nil {
			return err
		}
	}
	if err := w.selectRows(&b.Options); err != nil {
		return err
	}
	if err := w.watchStopped(ctx); err != nil {
		return err
	}
	for i := range w.tables {
		w.say("table %s: %s", w.tables[i].Name, w.tables[i].left)
	}
	if err := b.Run(ctx); err != nil {
		return err
	}
	if w.Options.GivenUp != Send && w.anyGivenUp() > 0 && w.Options.Yes {
		w.sayLeave()
	}
	return nil
}

// studyStopped is study where a table may be without a mark: its publisher deletes.
func (w *work) studyStopped(ctx context.Context) error {
	for i := range w.tables {
		t := &w.tables[i]
		if len(w.Options.Marks) == 0 && len(t.Shape.PublishedColumns()) == 0 {
			continue
		}
		if err := t.chooseMarks(w.Options.Marks); err != nil {
			return err
		}
		if err := w.holder.Ask(ctx, func(q postgres.Querier, _ int) error { return t.studyGivenUp(q, w.Options.Published) }); err != nil {
			return err
		}
	}
	if err := w.countBetween(ctx); err != nil {
		return err
	}
	return w.count(ctx)
}

// selectRows has the backfill take what the publisher has left.
func (w *work) selectRows(o *backfill.Options) error {
	if len(w.tables) > 1 {
		for i := range w.tables {
			t := &w.tables[i]
			if len(t.marks) == 0 || len(w.Options.Marks) > 0 || w.Options.GivenUp == Leave && t.left.givenUp > 0 || w.Options.GivenUp == Send && t.left.between > 0 {
				return usage("several tables have to be alike: each with one mark that is found, no row that the publisher gave up and is to be left, and none with another status that is to be sent; configure one table, complete its cutover, and give the others a slot of their own")
			}
		}
		o.Unpublished = true
		return nil
	}
	t := &w.tables[0]
	switch {
	case len(t.marks) == 0:
		o.All = true
	case w.Options.GivenUp == Leave && t.givenUp != "":
		o.Where = t.marks[0].Where + " AND NOT " + t.givenUp
	case w.Options.GivenUp == Send && t.left.between > 0:
		o.Where = t.marks[0].Where + " OR " + t.between
	default:
		o.Where = t.marks[0].Where
	}
	return nil
}

// watchStopped refuses a publisher that is there.
func (w *work) watchStopped(ctx context.Context) error {
	before := make([]lively, len(w.tables))
	holders := map[string]int{}
	look := func(first bool) error {
		for i := range w.tables {
			t := &w.tables[i]
			err := w.holder.Ask(ctx, func(q postgres.Querier, _ int) error {
				now, err := t.lively(q)
				if err != nil {
					return err
				}
				if first {
					before[i] = now
				} else if now.changed != before[i].changed || now.deleted != before[i].deleted {
					return t.refuse("stop every instance of it, and run the command again", "is still worked on: it changed %s and deleted %s in the last moments, as a publisher does", wording.Count(now.changed-before[i].changed, "row"), wording.Count(now.deleted-before[i].deleted, "row"))
				}
				return t.rowLocks(q, holders)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	for began, first := time.Now(), true; ; first = false {
		if err := look(first); err != nil {
			return err
		}
		for who, n := range holders {
			if n > 2 {
				return progress.Refuse(fmt.Errorf("a session has rows locked for longer than a statement, as a publisher does: %s", who), "stop every instance of it, and run the command again")
			}
		}
		if time.Since(began) >= w.Options.Watch {
			return nil
		}
		select {
		case <-time.After(min(200*time.Millisecond, w.Options.Watch)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rowLocks counts, by session and transaction, the looks at which it had locks on rows.
func (t *polled) rowLocks(q postgres.Querier, seen map[string]int) error {
	rows, err := q.All(fmt.Sprintf(`SELECT DISTINCT 'pid ' || a.pid || ' (' || pg_catalog.concat_ws(', ', a.usename, nullif(a.application_name, ''), 'in a transaction since ' || a.xact_start) || ')'
		FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a USING (pid)
		WHERE l.relation IN (SELECT %[1]d UNION SELECT relid FROM pg_catalog.pg_partition_tree(%[1]d)) AND l.mode = 'RowShareLock' AND l.granted AND pid <> pg_catalog.pg_backend_pid()`, t.OID))
	if err != nil {
		return t.classify(err)
	}
	for _, r := range rows {
		seen[strings.TrimSpace(r[0].Text)]++
	}
	return nil
}
