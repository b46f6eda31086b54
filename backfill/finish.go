package backfill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
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
	for _, slot := range s.Final {
		if slot.Exists {
			continue
		}
		err := w.holder.Ask(ctx, func(q postgres.Querier, version int) error {
			warning, err := provision.CopySlot(q, w.settings.Replication, version, s.Temporary.Name, slot.Name)
			if warning != "" {
				w.Out.warn(warning)
			}
			return err
		})
		if err != nil {
			return err
		}
		w.OnStep("copied")
		w.Out.say(Line{What: "step", Text: fmt.Sprintf("made slot %q at %s", slot.Name, done.Point)})
	}
	for i := range s.Final {
		if err := w.begins(ctx, &done, w.settings.OfShard(i, len(s.Final)), s.Final[i]); err != nil {
			return err
		}
		w.OnStep("written")
	}
	if err := w.drop(ctx, s.Temporary.Name); err != nil {
		return err
	}
	w.OnStep("dropped")
	text := wording.Count(done.Rows, "row") + " from before the slot sent"
	if w.rejected.letters > 0 {
		text += fmt.Sprintf(", %s among them: see `cdc-relay deadletter list`", wording.Count(w.rejected.letters, "dead letter"))
	}
	if w.rejected.skipped > 0 && w.settings.OnReject == relay.SkipOnReject {
		text += fmt.Sprintf(", but for %s that could not be sent and %s skipped", wording.Count(w.rejected.skipped, "row"), map[bool]string{true: "was", false: "were"}[w.rejected.skipped == 1])
	}
	w.Out.say(Line{What: "result", Rows: done.Rows, Text: text + "; start `cdc-relay run`"})
	return nil
}

// setupHolder is who writes a slot's first position, among the holders of a slot.
const setupHolder = "setup"

// begins writes where a slot begins, between two records of what lies before it: see
// checkpoint.BeforeSlot for the order. A relay that began meanwhile has written its own position.
func (w *work) begins(ctx context.Context, p *progress.Progress, cfg relay.Config, slot progress.Slot) error {
	if w.ledger == nil {
		return nil
	}
	writing, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if !slot.Ours {
		if err := w.before(writing, p, slot.Name, checkpoint.BeforeUnknown); err != nil {
			return err
		}
	}
	known, err := recorded(writing, w.ledger, p.System, slot.Name)
	if err != nil {
		return err
	}
	for key, end := range known {
		if end >= p.Point {
			continue
		}
		// Of an earlier slot that nobody streamed from.
		if err := w.ledger.Write(writing, key, nil); err != nil {
			return err
		}
		delete(known, key)
	}
	if len(known) == 0 {
		rec := checkpoint.Record{
			System: p.System, Timeline: p.Timeline, Slot: slot.Name, Publication: cfg.Replication.Publication, Relay: w.settings.Version, End: p.Point,
		}
		if cfg.Guarantee == relay.ExactlyOnce {
			err = checkpoints.WriteFirst(writing, w.settings.Replication, cfg, &rec)
			if errors.Is(err, checkpoints.ErrTaken) {
				err = nil
			}
		} else {
			err = w.ledger.Write(writing, checkpoint.PromiseKey(setupHolder, p.System, slot.Name), rec.Encode())
		}
		if err != nil {
			return err
		}
	}
	return w.before(writing, p, slot.Name, checkpoint.BeforeSent)
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
	published, hasColumn := w.tables[i].Shape.PublishedColumn()
	return !hasColumn || !published.Sure || published.Where != t.Where
}

// before writes what is known of the rows before a slot, in each table of the backfill. Of rows
// that it left out it knows nothing.
func (w *work) before(ctx context.Context, p *progress.Progress, slot string, known checkpoint.Before) error {
	kind := checkpoint.Intents
	if w.settings.Guarantee == relay.ExactlyOnce {
		kind = checkpoint.Checkpoints
	}
	for i := range p.Tables {
		t, about := &p.Tables[i], known
		if w.leavesOut(t) {
			about = checkpoint.BeforeUnknown
		}
		rec := checkpoint.BeforeSlot{
			System: p.System, Timeline: p.Timeline, Slot: slot, Table: t.Table, OID: t.OID,
			Before: about, Point: p.Point, Positions: kind, At: time.Now(), Relay: w.settings.Version,
		}
		if err := w.ledger.Write(ctx, checkpoint.BeforeSlotKey(p.System, slot, t.OID), rec.Encode()); err != nil {
			return err
		}
	}
	return nil
}

// gone is a slot that somebody dropped.
func gone(name string) error {
	return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonSlotMissing, Op: "watch", Subject: postgres.SlotSubject(name), Err: errors.New("it no longer exists")}
}
