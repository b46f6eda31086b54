package upkeep

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Found is what was found out about one table.
type Found struct {
	Survey   *maintenance.Survey // nil: there is no such table
	Index    string              // that leads to the rows; empty: none
	Identity Identity
	Refused  []error // why nothing is done
	Alone    []error // why nothing is done in some of its partitions
}

// LeaveAlone notes an unlogged partition, whose rows no slot has and none is proven delivered.
func (f *Found) LeaveAlone(partition wal.Table) {
	f.Alone = append(f.Alone, &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonPartitionUnlogged, Op: "leave alone", Err: fmt.Errorf("partition %s is unlogged: no slot has its rows, and they stay as they are; the other partitions are worked on", partition),
		Hint: "run: ALTER TABLE " + partition.SQL() + " SET LOGGED; send its rows (`cdc-relay replay`), then say that they are delivered (`cdc-relay setup --before-slot delivered`); or detach it",
	})
}

// Complete reports whether a pass did all that it could. The error that it left partitions alone is no failure.
func Complete(err error) bool { return err == nil || Reason(err) == fault.ReasonPartitionUnlogged }

// LeftAlone is said after the work on the other partitions; nil: there is nothing to say.
func (f *Found) LeftAlone() error {
	if len(f.Alone) == 1 {
		return f.Alone[0]
	}
	return errors.Join(f.Alone...)
}

// Sort takes a refusal up. What is left of err is of a server that does not answer.
func (f *Found) Sort(err error) error {
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind == fault.KindRefused {
		f.Refused = append(f.Refused, err)
		return nil
	}
	return err
}

// Plan is what every job shows of one table: what would be done, and what stands in the way.
type Plan struct {
	Due     *int64     `json:"due_rows"` // null: not counted
	Oldest  *time.Time `json:"oldest"`
	Letters int        `json:"dead_letters_waiting"`
	Rows    int64      `json:"estimated_rows"`
	Index   string     `json:"index"`
	Slots   []Slot     `json:"slots"`

	Triggers []string  `json:"triggers"`
	Notes    []string  `json:"notes"`
	Refused  []Refusal `json:"refused"`
}

// NewPlan is one without rows.
func NewPlan(f *Found) Plan {
	p := Plan{Index: f.Index, Slots: []Slot{}, Triggers: []string{}, Notes: []string{}, Refused: []Refusal{}}
	for _, r := range Refusals(f.Alone) {
		p.Note("%s", r.Line())
	}
	if s := f.Survey; s != nil {
		p.Rows = s.Rows
		if s.Standbys.Hidden > 0 {
			p.Note("the lag of %s is hidden from role %q; GRANT pg_read_all_stats TO %s shows it", wording.Count(s.Standbys.Hidden, "standby server"), s.Role, wal.QuoteIdentifier(s.Role))
		}
	}
	return p
}

// Note adds what is good to know.
func (p *Plan) Note(text string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(text, args...)) }

// Counted adds what was counted.
func (p *Plan) Counted(due maintenance.Due) {
	if !due.Counted {
		p.Note("counting the rows took too long and was given up")
		return
	}
	p.Due, p.Oldest = &due.Rows, due.Oldest
}

// Prove adds what a proof of a table's rows would find, to the plan and to the refusals.
func (s *Service) Prove(ctx context.Context, t *Target, f *Found, plan *Plan) error {
	if f.Survey == nil {
		return nil
	}
	at, err := s.Standing(ctx, t.Table, f.Survey.OID, f.Identity, len(f.Refused) > 0)
	if err != nil {
		return err
	}
	if at.Refused != nil {
		f.Refused = append(f.Refused, at.Refused)
	}
	plan.Letters, plan.Slots, plan.Notes = at.Letters, at.Slots, append(plan.Notes, at.Notes...)
	return nil
}

// Lines of a plan for people, one fact a line.
type Lines []string

// Add adds one fact.
func (l *Lines) Add(label, text string, args ...any) {
	*l = append(*l, fmt.Sprintf("  %-10s %s", label, fmt.Sprintf(text, args...)))
}

// Due adds how many rows there are to be done.
func (l *Lines) Due(label string, p *Plan) {
	switch {
	case p.Due == nil:
		l.Add(label, "not counted")
	case p.Oldest != nil:
		l.Add(label, "%s, the oldest of %s", wording.Count(*p.Due, "row"), p.Oldest.Format(time.RFC3339))
	default:
		l.Add(label, "%s", wording.Count(*p.Due, "row"))
	}
}

// Ways adds what leads to the rows, what a proof asks, and which triggers fire.
func (l *Lines) Ways(p *Plan) {
	if p.Letters > 0 {
		l.Add("held back", "rows of %s", wording.Count(p.Letters, "dead letter")+" that "+map[bool]string{true: "waits", false: "wait"}[p.Letters == 1])
	}
	if p.Index != "" {
		l.Add("index", "%s", p.Index)
	}
	for _, s := range p.Slots {
		l.Add("slot", "%s, %s behind the end of the WAL", s.Name, wording.Bytes(int64(s.Behind)))
	}
	if len(p.Triggers) > 0 {
		l.Add("triggers", "%s; their functions run with search_path = pg_catalog, unless they set their own", strings.Join(p.Triggers, ", "))
	}
}

// Remarks adds notes and refusals.
func (l *Lines) Remarks(p *Plan) {
	for _, n := range p.Notes {
		l.Add("note", "%s", n)
	}
	for i := range p.Refused {
		l.Add("refused", "%s", p.Refused[i].Line())
	}
}
