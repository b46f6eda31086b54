package cutover

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
)

// state is what a call finds.
type state struct {
	system    string // system identifier of the cluster
	slot      string // the configured one, without the number of a shard
	temporary progress.Slot
	final     []progress.Slot
	cuts      []*catalog.Cut // of each table; nil: it has no trigger
	backfill  bool           // the slot of a backfill exists
}

// step is what a call has to do first; the others follow.
type step string

const (
	begin    step = "begin"    // make the slot
	anew     step = "anew"     // the slot is lost before anything hung on it: make it again
	trigger  step = "trigger"  // make the triggers
	wait     step = "wait"     // for the publisher
	finish   step = "finish"   // the slot stands at the cut: make those that run streams from
	complete step = "complete" // nothing is left
)

// cut is that of all tables. They have one, as one transaction made it.
func (s *state) cut() (*catalog.Cut, error) {
	var first *catalog.Cut
	found := 0
	for _, c := range s.cuts {
		if c == nil {
			continue
		}
		if found++; first == nil {
			first = c
		}
		if c.At != first.At || c.System != first.System || c.Slot != first.Slot || c.Off != first.Off {
			return nil, progress.Refuse(errors.New("the triggers of the tables are not of one cutover"), "see which table was added to the configuration, and take it out until the cutover is complete")
		}
	}
	switch {
	case found == 0:
		return nil, nil
	case found < len(s.cuts) && !first.Off: // on the way back triggers are dropped one after the other
		return nil, progress.Refuse(fmt.Errorf("%d of %d tables have the trigger %s", found, len(s.cuts), postgres.CutoverTrigger),
			"a table was added to the configuration: take it out until the cutover is complete")
	case first.System != s.system:
		return nil, progress.Refuse(fmt.Errorf("the trigger %s was made on the server with system identifier %s, and this one has %s: it came with a copy of the data", postgres.CutoverTrigger, first.System, s.system),
			"drop it on this server, as the owner of the table")
	case first.Slot != s.slot:
		return nil, progress.Refuse(fmt.Errorf("the trigger %s is of a cutover to slot %q", postgres.CutoverTrigger, first.Slot), "configure that slot (postgres.slot)")
	}
	return first, nil
}

func (s *state) finals() (made int) {
	for _, slot := range s.final {
		if slot.Exists {
			made++
		}
	}
	return made
}

// decide chooses the step that follows from the state.
func (s *state) decide() (step, error) {
	cut, err := s.cut()
	if err != nil {
		return "", err
	}
	made, t := s.finals(), &s.temporary
	switch {
	case s.backfill:
		return "", progress.Refuse(errors.New("a backfill of this slot is under way or was interrupted"), "let `cdc-relay backfill --yes` complete it, or drop its slot with `cdc-relay teardown --yes`")
	case t.Exists && t.Active:
		return "", progress.Refuse(fmt.Errorf("somebody streams from %s", postgres.SlotSubject(t.Name)), "another cutover is under way: wait until it has ended")
	case cut != nil && cut.Off:
		return "", progress.Refuse(errors.New("the way back was taken, and the trigger is disabled"), "drop it with `cdc-relay cutover --back --yes`")
	case cut == nil && made > 0:
		return "", progress.Refuse(fmt.Errorf("%s exists, so a relay may have streamed from it", postgres.SlotSubject(s.final[slices.IndexFunc(s.final, func(slot progress.Slot) bool { return slot.Exists })].Name)),
			"if none has, drop it: the cutover makes its own")
	case cut == nil && !t.Exists:
		return begin, nil
	case cut == nil && t.Err != nil:
		return anew, nil //nolint:nilerr // a lost slot is replaced by a new one
	case cut == nil:
		return trigger, nil
	case !t.Exists && made == len(s.final):
		return complete, nil
	case !t.Exists, t.Err != nil && made < len(s.final):
		return "", s.lost(cut)
	case t.Confirmed > cut.At:
		return "", progress.Refuse(fmt.Errorf("%s is at %s, and the cut at %s: somebody moved it", postgres.SlotSubject(t.Name), t.Confirmed, cut.At), wayOut(cut))
	}
	if err := s.onlyCopies(cut); err != nil {
		return "", err
	}
	// The slot is moved to the cut once the publisher has sent the rest. Once all copies are there it may be lost.
	if t.Confirmed == cut.At || t.Err != nil {
		return finish, nil //nolint:nilerr // a lost slot is needed no more
	}
	// Also with copies: a crash of the server takes a slot back to where it was last saved, and only a copy is
	// saved at once.
	return wait, nil
}

// onlyCopies refuses slots that the cutover did not make. Nobody else makes one at the cut: what is created
// later begins behind the commit of the triggers.
func (s *state) onlyCopies(cut *catalog.Cut) error {
	for _, slot := range s.final {
		if !slot.Exists || slot.Ours || slot.Confirmed == cut.At {
			continue
		}
		text, next := "%s is at %s, before the cut at %s, so the cutover did not make it", "find out who made it, stop what streams from it, and drop it"
		if slot.Confirmed > cut.At {
			text = "%s is at %s, the cutover makes it at %s, and nothing shows that it made this one"
			next = fmt.Sprintf("if an earlier call said `made slot %q`, a relay has streamed from it since: keep it, and drop %s; if none did, somebody else made it: stop what streams from it, and drop it", slot.Name, postgres.SlotSubject(s.temporary.Name))
		}
		return progress.Refuse(fmt.Errorf(text, postgres.SlotSubject(slot.Name), slot.Confirmed, cut.At), next+"; then run the command again")
	}
	return nil
}

// lost is a cut whose slot is gone: rows after it have a mark, and nobody sends them.
func (s *state) lost(cut *catalog.Cut) error {
	err := s.temporary.Err
	if err == nil {
		err = fmt.Errorf("%s is gone", postgres.SlotSubject(s.temporary.Name))
	}
	return progress.Refuse(fmt.Errorf("%w: rows since %s (%s) are marked as published, and nobody has sent them", err, cut.At, cut.Time.UTC().Format("2006-01-02 15:04:05 UTC")), wayOut(cut))
}

// wayOut is the way out of a slot that does not have all rows after the cut. The trigger stays,
// so later rows are the stream's.
func wayOut(cut *catalog.Cut) string {
	return "drop the slot if it is there, and run " + cut.Backfill()
}
