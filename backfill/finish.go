package backfill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/backfill/handover"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/wording"
)

// finish makes the slots and what is written about them. Each step may have been done by a call
// before; the backfill's slot goes last, because its name shows the next call that something is left to do.
func (w *work) finish(ctx context.Context, s *progress.State) error {
	done := *w.progress
	if !done.Finished {
		done.Place, done.Finished = w.track.Now(), true
		done.Table, done.Done = len(done.Tables), nil
		if err := w.writeProgress(ctx, &done); err != nil {
			return err
		}
	}
	w.OnStep("finished")
	if err := w.holder.End(ctx); err != nil {
		return err
	}
	if done.Online != nil && slices.ContainsFunc(s.Final, func(f progress.Slot) bool { return !f.Exists }) {
		// A server that crashed may have given the slot an older position.
		if err := w.advance(ctx, done.Online.Until); err != nil {
			return err
		}
	}
	made := w.handOver(&done, s)
	if err := made.Make(ctx, w.holder); err != nil {
		return err
	}
	if err := w.drop(ctx, s.Temporary.Name); err != nil {
		return err
	}
	if done.Online != nil {
		if err := w.forgetStream(ctx, done.System); err != nil {
			return err
		}
	}
	w.OnStep("dropped")
	text := wording.Count(done.Rows, "row") + " from before the slot sent"
	if done.Online != nil {
		text = fmt.Sprintf("%s of the tables sent in %s, and what was written since as the stream had it", wording.Count(done.Rows, "row"), wording.Count(done.Online.Buckets, "bucket"))
		if !done.Online.Exactly && s.Progress != nil && s.Progress.Run == done.Run {
			text += " (repeated ones are counted again)"
		}
	}
	if w.skip.n > 0 {
		text += fmt.Sprintf(", %s were in the topics already", wording.Count(w.skip.n, "row"))
	}
	if w.relays.letters > 0 {
		text += fmt.Sprintf(", %s among them: see `cdc-relay deadletter list`", wording.Count(w.relays.letters, "dead letter"))
	}
	if n := done.Skipped; n > 0 {
		text += fmt.Sprintf(", but for %s that could not be sent and %s skipped: retention keeps away from rows from before the slot until `cdc-relay setup --before-slot delivered`",
			wording.Count(n, "row"), map[bool]string{true: "was", false: "were"}[n == 1])
	}
	w.Out.say(Line{What: "result", Rows: done.Rows, Text: text + "; start `cdc-relay run`"})
	if len(made.Changed) > 0 {
		return progress.Refuse(fmt.Errorf("the backfill is complete, but for rows of table %s that were written while a publication did not have it", strings.Join(made.Changed, ", ")),
			"find them with `cdc-relay audit`, and send them with `cdc-relay replay`")
	}
	return nil
}

// handOver is what is made from the backfill's slot.
func (w *work) handOver(p *progress.Progress, s *progress.State) *handover.Copies {
	h := &handover.Copies{
		Settings: w.settings, Ledger: w.ledger, Source: s.Temporary.Name, System: p.System, Timeline: p.Timeline, Began: w.holder.Origin().Begin(p.Timeline), Point: p.Copied(),
		Say: func(text string) { w.Out.say(Line{What: "step", Text: text}) }, Warn: w.Out.warn, OnStep: w.OnStep,
	}
	for _, slot := range s.Final {
		h.Slots = append(h.Slots, handover.Slot{Name: slot.Name, Exists: slot.Exists, Ours: slot.Ours})
	}
	for i := range p.Tables {
		t := &p.Tables[i]
		h.Tables = append(h.Tables, handover.Table{Name: t.Table, OID: t.OID, Unknown: p.Skipped > 0 || w.leavesOut(t), As: t.Published, Until: t.PublishedUntil})
	}
	return h
}

// leavesOut reports whether a table has rows that were not selected and that nothing shows to be
// published. Nobody knows whether they are delivered.
func (w *work) leavesOut(t *progress.TableProgress) bool {
	if t.Where == "" {
		return false
	}
	i := slices.IndexFunc(w.tables, func(s snapshot.Selection) bool { return s.OID == t.OID })
	if i < 0 {
		return true
	}
	published, known := w.tables[i].Shape.PublishedColumn(w.Options.Marks...)
	return !known || !published.Sure || published.Where != t.Where
}

// gone is a slot that somebody dropped.
func gone(name string) error {
	return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonSlotMissing, Op: "watch", Subject: postgres.SlotSubject(name), Err: errors.New("it no longer exists")}
}
