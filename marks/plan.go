package marks

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Plan is what would be done in one table now, and what stands in the way.
type Plan struct {
	Table    string `json:"table"`
	Column   string `json:"column"`
	Set      string `json:"set"`
	Unmarked string `json:"unmarked"`

	Due     *int64        `json:"due_rows"` // null: not counted
	Oldest  *time.Time    `json:"oldest"`
	Letters int           `json:"dead_letters_waiting"`
	Rows    int64         `json:"estimated_rows"`
	Index   string        `json:"index"`
	Slots   []upkeep.Slot `json:"slots"`

	Triggers []string         `json:"triggers"`
	Notes    []string         `json:"notes"`
	Refused  []upkeep.Refusal `json:"refused"`
}

// Plan finds out what would be done.
func (s *Service) Plan(ctx context.Context, p *Policy) (*Plan, []error, error) {
	f, err := s.inspect(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	plan := f.plan()
	if f.survey != nil {
		if f.survey.MaySelect && f.setting.unmarked != "" {
			if err := s.count(ctx, f, plan); err != nil {
				return nil, nil, err
			}
		}
		if err := s.planProof(ctx, f, plan); err != nil {
			return nil, nil, err
		}
	}
	plan.Refused = upkeep.Refusals(f.refused)
	return plan, f.refused, nil
}

// Refused are the reasons for which no mark is set. They are what Plan shows, without counting rows.
func (s *Service) Refused(ctx context.Context, p *Policy) ([]error, error) {
	f, err := s.inspect(ctx, p)
	if err != nil {
		return nil, err
	}
	if f.survey != nil {
		err = s.planProof(ctx, f, new(Plan))
	}
	return f.refused, err
}

func (s *Service) count(ctx context.Context, f *found, plan *Plan) error {
	age := "NULL::pg_catalog.timestamptz"
	if name := f.age(); name != "" {
		age = wal.QuoteIdentifier(name)
	}
	due, err := s.Surveyor.Due(ctx, f.policy.Table, age, f.setting.unmarked)
	if err != nil {
		return err
	}
	if !due.Counted {
		plan.Notes = append(plan.Notes, "counting the rows took too long and was given up")
		return nil
	}
	plan.Due, plan.Oldest = &due.Rows, due.Oldest
	return nil
}

func (s *Service) planProof(ctx context.Context, f *found, plan *Plan) error {
	at, err := s.Standing(ctx, f.policy.Table, f.survey.OID, f.identity, len(f.refused) > 0)
	if err != nil {
		return err
	}
	if at.Refused != nil {
		f.refused = append(f.refused, at.Refused)
	}
	plan.Letters, plan.Slots, plan.Notes = at.Letters, at.Slots, append(plan.Notes, at.Notes...)
	return nil
}

// plan is what the table itself shows.
func (f *found) plan() *Plan {
	p := f.policy
	plan := &Plan{
		Table: p.Table.String(), Column: p.Column, Set: f.setting.set, Unmarked: f.setting.unmarked, Index: f.index,
		Slots: []upkeep.Slot{}, Triggers: []string{}, Notes: []string{}, Refused: []upkeep.Refusal{},
	}
	if f.survey == nil {
		return plan
	}
	plan.Rows = f.survey.Rows
	u := f.updates
	if u == nil {
		return plan
	}
	plan.Triggers = append(plan.Triggers, u.Triggers...)
	note := func(text string, args ...any) { plan.Notes = append(plan.Notes, fmt.Sprintf(text, args...)) }
	if f.index == "" && f.survey.Rows <= unindexed {
		note("no index leads to rows without a mark: each pass reads the whole table, which is small; for a larger one: %s", p.indexSQL(f.setting, f.survey.Columns))
	}
	if len(u.Indexed) > 0 {
		note("each mark is an UPDATE that writes all indexes anew, because %s has the column or asks for it: two to three times the WAL of the insert, and a dead row for autovacuum", strings.Join(u.Indexed, ", "))
	} else {
		note("each mark is an UPDATE: WAL, and a dead row for autovacuum; a fillfactor of 50 to 70 keeps it within its page")
	}
	if len(u.Publications) > 0 && len(u.NoIdentity) == 0 {
		note("publication %s sends updates: its readers get one for each mark", strings.Join(u.Publications, ", "))
	}
	if f.survey.Standbys.Hidden > 0 {
		note("the lag of %s is hidden from role %q; GRANT pg_read_all_stats TO %s shows it", wording.Count(f.survey.Standbys.Hidden, "standby server"), f.survey.Role, wal.QuoteIdentifier(f.survey.Role))
	}
	return plan
}

// Lines is the plan for people, one fact a line.
func (p *Plan) Lines() (lines []string) {
	add := func(label, text string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-10s %s", label, fmt.Sprintf(text, args...)))
	}
	lines = append(lines, fmt.Sprintf("%s: set %s on delivered rows", p.Table, p.Column))
	if p.Set != "" {
		add("set", "%s, where %s", p.Set, p.Unmarked)
	}
	switch {
	case p.Due == nil:
		add("unmarked", "not counted")
	case p.Oldest != nil:
		add("unmarked", "%s, the oldest of %s", wording.Count(*p.Due, "row"), p.Oldest.Format(time.RFC3339))
	default:
		add("unmarked", "%s", wording.Count(*p.Due, "row"))
	}
	if p.Letters > 0 {
		add("held back", "rows of %s", wording.Count(p.Letters, "dead letter")+" that "+map[bool]string{true: "waits", false: "wait"}[p.Letters == 1])
	}
	if p.Index != "" {
		add("index", "%s", p.Index)
	}
	for _, s := range p.Slots {
		add("slot", "%s, %s behind the end of the WAL", s.Name, wording.Bytes(int64(s.Behind)))
	}
	if len(p.Triggers) > 0 {
		add("triggers", "%s", strings.Join(p.Triggers, ", "))
	}
	for _, n := range p.Notes {
		add("note", "%s", n)
	}
	for i := range p.Refused {
		add("refused", "%s", p.Refused[i].Line())
	}
	return lines
}
