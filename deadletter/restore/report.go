package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Report is what happened, or would, to each group that the redrive reached. It is also the JSON
// of the command.
type Report struct {
	Plan    bool     `json:"plan"`
	Discard bool     `json:"discard"`
	Letters int      `json:"letters"`
	Done    int      `json:"done"`
	Records int      `json:"records"`       // that the brokers acknowledged
	Failed  int      `json:"failed"`        // of a plan: what is known to fail
	Others  int      `json:"other_sources"` // letters that the filters select and --source does not
	Left    int      `json:"left_of_keys"`  // letters of the same keys that still wait, or would
	Groups  []Group  `json:"groups"`
	Stopped *Stopped `json:"stopped,omitempty"`
	tasks   []deadletter.Task
	behind  int // letters of the same keys that are not among Letters
}

// NewReport is that of a redrive, or of its plan, before its first outcome. A backlog has the
// tasks, and the dead letters that the filters select and the redrive leaves to their sources.
func NewReport(plan, discard bool, tasks []deadletter.Task, backlog *deadletter.Backlog) *Report {
	r := &Report{Plan: plan, Discard: discard, Groups: []Group{}, tasks: tasks}
	for _, task := range tasks {
		r.Letters += len(task.Entries)
		r.behind += task.Left
	}
	r.count()
	for _, e := range backlog.Entries {
		if e.Other && e.Done == "" {
			r.Others++
		}
	}
	return r
}

// Behind is how many letters of the same keys a discard does not select.
func (r *Report) Behind() int { return r.behind }

// count keeps Left in step with what is done, or would be.
func (r *Report) count() {
	r.Left = r.Letters + r.behind - r.Done
	if r.Plan {
		r.Left = r.Failed + r.behind
	}
}

// Stop takes up that the redrive ended before its end.
func (r *Report) Stop(s *deadletter.Stopped) {
	r.Stopped = newStopped(s)
	r.Failed = r.Letters - r.Done
	r.count()
}

// Group is what happened, or would, to the waiting dead letters of one topic and key.
type Group struct {
	Table      string `json:"table"` // of the letters; several are separated by ", "
	Topic      string `json:"topic"` // where it goes, or was to go
	Source     string `json:"source"`
	Letters    int    `json:"letters"`
	Selected   int    `json:"selected"` // the others share their topic and key
	Incomplete int    `json:"incomplete"`
	From       string `json:"from"` // lsn/seq
	Through    string `json:"through"`
	Done       int    `json:"done"`
	Changed    int    `json:"changed"`  // rows that were changed after their letters were written
	Recoded    int    `json:"recoded"`  // letters whose schema is gone, so that nothing shows whether their rows were changed
	Unproven   int    `json:"unproven"` // rows of which neither key nor value shows that they are the letters'
	Error      string `json:"error,omitempty"`
	Partition  *int32 `json:"partition,omitempty"` // of the letter that Error is about
	Offset     *int64 `json:"offset,omitempty"`

	task    *deadletter.Task
	reached map[*deadletter.Entry]bool
}

// describe fills in what the group is: what was reached, and what still waits behind it. A
// letter that another redrive was done with meanwhile is neither.
func (g *Group) describe() {
	var entries []*deadletter.Entry
	for _, e := range g.task.Entries {
		if g.reached[e] || e.Done == "" {
			entries = append(entries, e)
		}
	}
	first, last := entries[0], entries[len(entries)-1]
	g.Source, g.From, g.Through = first.Source, first.String(), last.String()
	g.Letters, g.Selected, g.Incomplete = len(entries), 0, 0
	var tables []string
	for _, e := range entries {
		if !slices.Contains(tables, e.Table) {
			tables = append(tables, e.Table)
		}
		if e.Matched {
			g.Selected++
		}
		if !e.Complete() {
			g.Incomplete++
		}
	}
	g.Table = strings.Join(tables, ", ")
}

// Add takes up what was done for the letters of a group, or would be. The pieces of a large
// group come one after another.
func (r *Report) Add(out deadletter.Outcome) {
	if n := len(r.Groups); n == 0 || r.Groups[n-1].task != out.Task {
		r.Groups = append(r.Groups, Group{task: out.Task, Topic: out.Entries[0].Record.Topic, reached: make(map[*deadletter.Entry]bool)})
	}
	g := &r.Groups[len(r.Groups)-1]
	if len(g.reached) == 0 && out.Topic != "" {
		g.Topic = out.Topic
	}
	if out.Err != nil && g.Error == "" { // what is after it was left for its sake
		g.failed(out)
	}
	for _, e := range out.Entries {
		g.reached[e] = true
	}
	g.Changed += out.Changed
	g.Recoded += out.Recoded
	g.Unproven += out.Unproven
	g.describe()
	if !r.Plan {
		g.Done += out.Done
		r.Done += out.Done
		r.Records += out.Records
	}
	r.Failed += len(out.Entries) - out.Done
	r.count()
}

// failed explains why a group ended, and at which letter: that is the one to discard, or to look at.
func (g *Group) failed(out deadletter.Outcome) {
	e := out.Entries[min(out.Done, len(out.Entries)-1)]
	g.Error, g.Partition, g.Offset = Cause(out.Err), &e.Partition, &e.Offset
	if place := fmt.Sprintf("partition %d, offset %d", e.Partition, e.Offset); !strings.Contains(g.Error, place) {
		g.Error += " (the letter at " + place + ")"
	}
}

// NeedsRows reports whether a dead letter has to be completed from a table.
func (r *Report) NeedsRows() bool {
	for _, task := range r.tasks {
		for _, e := range task.Entries {
			if !e.Complete() {
				return true
			}
		}
	}
	return false
}

// Hopeless reports whether no dead letter of a plan can be sent.
func (r *Report) Hopeless() bool { return r.Plan && r.Letters > 0 && r.Failed == r.Letters }

// Summary counts over all waiting letters of the keys that the redrive is about.
func (r *Report) Summary() string {
	all := r.Letters + r.behind
	verb := "re-driven"
	if r.Discard {
		verb = "discarded"
	}
	left := ""
	if r.behind > 0 {
		left = ": re-drive them, or discard them too with --whole-key"
	}
	of := wording.Count(all, "dead letter") + " of the selected keys"
	if r.Plan {
		if r.Failed > 0 {
			left = fmt.Sprintf(" (%d would fail)", r.Failed) + left
		}
		next := "repeat with --yes"
		if r.Hopeless() {
			next = "--yes would change nothing: first fix what RESULT names"
		}
		return fmt.Sprintf("%d of %s would be %s, %d would be left%s; nothing was changed, %s", r.Letters-r.Failed, of, verb, r.Left, left, next)
	}
	return fmt.Sprintf("%d of %s %s, %d left%s", r.Done, of, verb, r.Left, left)
}

// Doubts counts the rows that are not, or may not be, what they were when their dead letters
// were written.
func (g *Group) Doubts() (text string) {
	if n := g.Changed; n > 0 {
		text += fmt.Sprintf("; warning: %s changed after the dead letter was written; the record has the value of the dead letter, or the present one where that has none", wording.Count(n, "row"))
	}
	if n := g.Recoded; n > 0 {
		text += fmt.Sprintf("; warning: %s encoded by a schema that is not in the registry any more, so that nothing shows whether the row was changed; a missing value is encoded by the present schema", wording.Count(n, "dead letter"))
	}
	if n := g.Unproven; n > 0 {
		text += fmt.Sprintf("; warning: %s found by event id alone: without a key and a known value nothing shows that a reused id is not another row", wording.Count(n, "row"))
	}
	return text
}

// Stopped is where a redrive ended before its end.
type Stopped struct {
	Error     string `json:"error"`
	Partition *int32 `json:"partition,omitempty"` // of the first letter that it had in hand and did not mark
	Offset    *int64 `json:"offset,omitempty"`
	Unsure    int    `json:"unsure"` // letters from there on that the brokers may have all the same

	entry *deadletter.Entry
}

func newStopped(s *deadletter.Stopped) *Stopped {
	r := &Stopped{Error: Cause(s.Err), Unsure: s.Unsure, entry: s.Entry}
	if s.Entry != nil {
		r.Partition, r.Offset = &s.Entry.Partition, &s.Entry.Offset
	}
	return r
}

// Cause is the text of an error; a signal is named as such.
func Cause(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted by a signal"
	}
	return err.Error()
}

// Interrupted is the error of a redrive that stopped: what it did, and that it may be run again.
func (r *Report) Interrupted() error {
	s, done := r.Stopped, "sent and marked"
	if r.Discard {
		done = "discarded"
	}
	text := fmt.Sprintf("the redrive stopped: %s; %s: %d of %s", s.Error, done, r.Done, wording.Count(r.Letters, "dead letter"))
	again := "Run it again: marked letters are skipped"
	if s.entry != nil {
		text += fmt.Sprintf("; in hand was the one at partition %d, offset %d (row %s of table %s)", s.entry.Partition, s.entry.Offset, s.entry.Place, s.entry.Table)
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
