package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/wording"
)

// claim locks the own slots whose letters the redrive is about, so that it is alone with
// them, and reads the letters again: what another redrive did until then is known by now.
// The context that it gives ends when a lock is lost. Letters of other sources have no
// lock that we could take.
func (l *letters) claim(ctx context.Context, o redriveOptions) (context.Context, func(), error) {
	if !o.yes || o.withoutLock {
		return ctx, func() {}, nil
	}
	slots, err := l.ownSlots(ctx, o)
	if err != nil || len(slots) == 0 {
		return ctx, func() {}, err
	}
	x, err := watch.OpenExclusion(ctx, l.settings.Replication, l.system)
	if err != nil {
		return ctx, nil, unlocked(err)
	}
	for len(slots) > 0 {
		for _, slot := range slots {
			if err := x.Take(ctx, slot); err != nil {
				x.Close()
				return ctx, nil, unlocked(err)
			}
		}
		if err = l.read(ctx); err == nil {
			slots, err = l.ownSlots(ctx, o)
		}
		if err != nil {
			x.Close()
			return ctx, nil, err
		}
		slots = slices.DeleteFunc(slots, x.Holds)
	}
	guarded, release := x.Watch(ctx)
	return guarded, release, nil
}

// ownSlots are those of the tasks' letters that the configured database has. It is asked
// for its identifier only where a slot's name could be ours.
func (l *letters) ownSlots(ctx context.Context, o redriveOptions) (slots []string, err error) {
	for _, task := range l.tasks(o) {
		source := task.Entries[0].Source
		_, slot, _ := strings.Cut(source, "/") // see deadletter.SourceID
		if slices.Contains(slots, slot) || !l.settings.Replication.OwnSlot(slot) {
			continue
		}
		if err := l.identify(ctx); err != nil {
			return nil, unlocked(err)
		}
		if l.own(source) {
			slots = append(slots, slot)
		}
	}
	return slots, nil
}

// unlocked says what a redrive needs PostgreSQL for. That somebody else has the lock, or
// that it would be none, is for a person.
func unlocked(err error) error {
	if postgres.KindOf(err) != fault.KindRetry {
		return &advice.Refused{Err: err}
	}
	return fmt.Errorf("%w; a redrive takes a lock at PostgreSQL, so that it is the only one of its source; where the server is gone for good, and nobody else re-drives, there are --source SYSTEM/SLOT and --without-lock", err)
}

// tasks are what the options make of the letters.
func (l *letters) tasks(o redriveOptions) []deadletter.Task {
	if o.discard && !o.wholeKey {
		return l.backlog.Selected()
	}
	return l.backlog.Whole()
}

// stoppedReport is where a redrive ended before its end.
type stoppedReport struct {
	Error     string `json:"error"`
	Partition *int32 `json:"partition,omitempty"` // of the first letter that it had in hand and did not mark
	Offset    *int64 `json:"offset,omitempty"`
	Unsure    int    `json:"unsure"` // letters from there on that the brokers may have all the same

	entry *deadletter.Entry
}

func newStoppedReport(s *deadletter.Stopped) *stoppedReport {
	r := &stoppedReport{Error: toldWhy(s.Err), Unsure: s.Unsure, entry: s.Entry}
	if s.Entry != nil {
		r.Partition, r.Offset = &s.Entry.Partition, &s.Entry.Offset
	}
	return r
}

// toldWhy is the error, with the signal named where that was the cause.
func toldWhy(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted by a signal"
	}
	return err.Error()
}

// interrupted says what a redrive did before it stopped, and that it may be run again.
func (r *redriveReport) interrupted() error {
	s, done := r.Stopped, "sent and marked"
	if r.Discard {
		done = "discarded"
	}
	text := fmt.Sprintf("the redrive stopped: %s; %s: %d of %s", s.Error, done, r.Done, wording.Count(r.Letters, "dead letter"))
	again := "Run it again: what is marked is left alone"
	if s.entry != nil {
		text += fmt.Sprintf("; in hand was the one at partition %d, offset %d (row %s of table %s)", s.entry.Partition, s.entry.Offset, s.entry.Row, s.entry.Table)
	}
	switch {
	case s.entry == nil:
	case s.Unsure == 0:
		text += ", of which nothing was sent"
	case r.Discard:
		text += ", and whether its marker was written is not known"
	default:
		text += fmt.Sprintf(", and of %s of its key from there on nobody knows whether the brokers have them", wording.Count(s.Unsure, "dead letter"))
		again += fmt.Sprintf(", and of those %d there may be two in topic %s then, in their order", s.Unsure, cmp.Or(s.entry.Record.Topic, "-"))
	}
	return errors.New(text + ". " + again)
}
