package progress

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// State is what a call finds.
type State struct {
	Temporary Slot   // of the backfill
	Final     []Slot // the configured ones, of all shards

	Progress *Progress // nil: none is kept, or there is none
	Readable bool      // Progress was looked for
	Begun    bool      // a call has announced that it makes the slot, and has sent nothing
	Keeps    bool      // the configuration keeps positions, and with them the progress
	Exactly  bool      // relay.guarantee is exactly_once

	System   string
	Timeline int32
	Tables   []TableProgress // that are selected now
	Total    bool            // the orders of all of them are
	Online   bool            // the operator wants the rows sent bucket by bucket
}

// Slot is what State.Decide needs to know of a slot.
type Slot struct {
	Name      string
	Exists    bool
	Active    bool
	Confirmed wal.LSN
	Ours      bool  // this backfill made it: the record of the rows before it has the same beginning
	Err       error // why it is of no use
}

// Step is what a call has to do.
type Step string

// The steps.
const (
	Begin   Step = "begin"   // nothing is there
	Anew    Step = "anew"    // drop what is left of an attempt, then begin
	Resume  Step = "resume"  // read on from the progress
	Finish  Step = "finish"  // all rows are sent: make the slots
	Nothing Step = "nothing" // it is complete
)

// Decide takes what follows from a state. restart is the operator's word that what was sent may
// be sent again.
func (s *State) Decide(restart bool) (Step, error) {
	made, ahead := s.finals()
	p := s.Progress
	finished := p != nil && p.Finished && p.System == s.System && (!s.Temporary.Exists || p.OfSlot(s.Temporary.Confirmed))
	switch {
	case !s.Temporary.Exists && made == len(s.Final):
		if finished && s.complete() && s.sent() {
			return Nothing, nil
		}
		if finished {
			return "", s.RefuseOthers()
		}
		return "", Refuse(fmt.Errorf("%s exists, so a relay may have sent newer rows, and older rows can no longer come before them", subject(s.Final[0].Name)),
			"a backfill is for the first set-up, before a slot exists; to send rows beside the relay: `cdc-relay backfill --late`, with --where for these rows alone")
	case made > 0 && (s.Keeps && !finished || ahead != nil):
		if ahead == nil {
			ahead = s.firstMade()
		}
		return "", Refuse(fmt.Errorf("%s exists, and there is no record that a complete backfill made it", subject(ahead.Name)),
			fmt.Sprintf("if a relay streams from it, drop %s; otherwise find out who created it, drop it, and run the command again", subject(s.Temporary.Name)))
	case !s.Temporary.Exists && made > 0:
		return "", Refuse(fmt.Errorf("%d of %d slots of shards exist, and %s does not", made, len(s.Final), subject(s.Temporary.Name)),
			"`cdc-relay setup` creates the others, starting at the position of the first one")
	case !s.Temporary.Exists:
		return s.fresh(restart)
	case s.Temporary.Active:
		return "", Refuse(fmt.Errorf("somebody streams from %s", subject(s.Temporary.Name)), "another backfill is under way, or the server has not ended the connection of one that was killed: wait until it has ended")
	case finished && made == 0 && s.Temporary.Err == nil && p.Behind(s.Temporary.Confirmed):
		if restart {
			return Anew, nil
		}
		return s.half() // which compares the history of the server, and moves the slot
	case made == len(s.Final), s.Temporary.Err == nil && (finished || made > 0):
		// A copy is made after the last acknowledgement. Once all are there the slot may be lost.
		return Finish, nil
	case restart:
		return Anew, nil
	}
	return s.half()
}

// finals counts the configured slots that exist, and finds one that is not where a copy of the
// backfill's would begin and that nothing says is one.
func (s *State) finals() (made int, foreign *Slot) {
	begins := s.Temporary.Confirmed
	if p := s.Progress; p != nil && p.Behind(begins) && p.OfSlot(begins) {
		begins = p.Copied() // the server crashed after a copy was made
	}
	for i := range s.Final {
		slot := &s.Final[i]
		if !slot.Exists {
			continue
		}
		made++
		if s.Temporary.Exists && slot.Confirmed != begins && !slot.Ours {
			foreign = slot
		}
	}
	return made, foreign
}

func (s *State) firstMade() *Slot {
	for i := range s.Final {
		if s.Final[i].Exists {
			return &s.Final[i]
		}
	}
	return nil
}

// fresh begins where there is no slot. Rows of an earlier attempt are sent already.
func (s *State) fresh(restart bool) (Step, error) {
	if p := s.Progress; p != nil && p.Rows > 0 && s.Exactly && !restart {
		return "", Refuse(fmt.Errorf("an earlier backfill sent %s, and its slot is gone: starting from the beginning would send them twice", wording.Count(p.Rows, "row")),
			"use --restart, which sends all rows again")
	}
	return Begin, nil
}

// half continues with an attempt that was interrupted.
func (s *State) half() (Step, error) {
	p := s.Progress
	again := "use --restart to start from the beginning and send all rows again"
	lost := s.Temporary.Err != nil
	switch {
	case lost && s.Exactly && p != nil && p.Rows > 0:
		return "", Refuse(fmt.Errorf("%w; it has sent %s", s.Temporary.Err, wording.Count(p.Rows, "row")), again)
	case p != nil && p.Online != nil && p.Rows > 0 && p.System == s.System && s.Exactly && !p.OfSlot(s.Temporary.Confirmed):
		return "", Refuse(fmt.Errorf("%s stands at %s, where the backfill that sent %s did not leave it", subject(s.Temporary.Name), s.Temporary.Confirmed, wording.Count(p.Rows, "row")), again)
	case p == nil && s.Exactly && !s.Begun:
		return "", Refuse(fmt.Errorf("there is no record of the backfill that made %s: the checkpoint topic was deleted or emptied, or the configuration names another one, and rows may be sent already", subject(s.Temporary.Name)),
			"correct relay.checkpoint_topic, or "+again)
	case lost, p == nil, p.System != s.System, !p.OfSlot(s.Temporary.Confirmed):
		// Nothing says how far that attempt came. With exactly-once nothing was sent: rows and
		// progress come together.
		return Anew, nil //nolint:nilerr // a lost slot is replaced by a new one
	case p.Timeline != s.Timeline:
		return "", Refuse(fmt.Errorf("the backfill began on timeline %d, and the server is on %d", p.Timeline, s.Timeline), again)
	case !s.sameShapes():
		return "", Refuse(errors.New("the selected rows, their order, a table or its mapping differ from those that the backfill began with"),
			"use the flags and the mapping that it began with, or "+again)
	case s.Online && p.Online == nil:
		return "", Refuse(errors.New("the backfill began without --online, and its slot holds what was written since"), "go on without it, or "+again)
	case p.Online != nil && len(p.Online.Shards) != len(s.Final):
		return "", Refuse(fmt.Errorf("the backfill began with postgres.shards: %d, and the configuration has %d", len(p.Online.Shards), len(s.Final)), "set it back, or "+again)
	case p.Online != nil && p.Online.Exactly != s.Exactly:
		return "", Refuse(fmt.Errorf("the backfill began with relay.guarantee: %s, and the configuration has the other one", map[bool]string{true: "exactly_once", false: "at_least_once"}[p.Online.Exactly]), "set it back, or "+again)
	case !s.Total && p.Online == nil: // a bucket is read again
		return Anew, nil
	}
	return Resume, nil
}

func (s *State) sameShapes() bool {
	return slices.EqualFunc(s.Tables, s.Progress.Tables, func(a, b TableProgress) bool { return a.Shape == b.Shape })
}

// sent reports whether a backfill that is complete was about the rows that are selected now.
func (s *State) sent() bool {
	added, changed := s.Others()
	return len(added)+len(changed) == 0
}

// Others are the tables of which the progress knows nothing, and those of which other rows are selected
// now than it is about.
func (s *State) Others() (added, changed []string) {
	if s.Progress == nil {
		return nil, nil
	}
	for _, t := range s.Tables {
		switch i := slices.IndexFunc(s.Progress.Tables, func(was TableProgress) bool { return was.OID == t.OID }); {
		case i < 0:
			added = append(added, t.Table)
		case s.Progress.Tables[i].Where != t.Where:
			changed = append(changed, t.Table)
		}
	}
	return added, changed
}

// RefuseOthers is said of rows that a complete backfill did not send.
func (s *State) RefuseOthers() error {
	return Refuse(fmt.Errorf("%s exists, and the complete backfill (%s sent) was of other tables, of another condition or of an earlier slot, so the rows that you name now may not be sent",
		subject(s.Final[0].Name), wording.Count(s.Progress.Rows, "row")), "send them beside the relay: `cdc-relay backfill --late`")
}

// complete reports whether the progress is that of a backfill which made all the slots.
func (s *State) complete() bool {
	return s.Progress.Finished && !slices.ContainsFunc(s.Final, func(slot Slot) bool { return !slot.Exists || !slot.Ours })
}

// Known reports whether the progress says which rows a call means that does not: those of the
// attempt that is under way, or of the one that is complete.
func (s *State) Known() bool {
	switch {
	case s.Progress == nil:
		return false
	case s.Temporary.Exists:
		return s.Progress.OfSlot(s.Temporary.Confirmed)
	}
	return s.complete()
}

// Refuse is an error that only a person can resolve.
func Refuse(cause error, next string) error { return &advice.Refused{Err: advice.Give(cause, next)} }

func subject(slot string) string { return fmt.Sprintf("slot %q", slot) }
