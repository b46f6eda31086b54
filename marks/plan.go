package marks

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

// Plan is what would be done in one table now, and what stands in the way.
type Plan struct {
	Table    string   `json:"table"`
	Column   string   `json:"column"`
	Set      string   `json:"set"`
	Unmarked string   `json:"unmarked"`
	Rejects  []string `json:"rejects,omitempty"`

	upkeep.Plan
}

// Plan finds out what would be done.
func (s *Service) Plan(ctx context.Context, p *Policy) (*Plan, []error, error) {
	f, err := s.inspect(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	plan := f.plan()
	if f.Survey != nil && f.Survey.MaySelect && f.setting.unmarked != "" {
		age := "NULL::pg_catalog.timestamptz"
		if name := f.age(); name != "" {
			age = wal.QuoteIdentifier(name)
		}
		due, err := s.Surveyor.Due(ctx, p.Table, age, f.setting.unmarked)
		if err != nil {
			return nil, nil, err
		}
		plan.Counted(due)
	}
	if err := s.Prove(ctx, &p.Target, &f.Found, &plan.Plan); err != nil {
		return nil, nil, err
	}
	plan.Refused = upkeep.Refusals(f.Refused)
	return plan, f.Refused, nil
}

// Refused are the reasons for which no mark is set. They are what Plan shows, without counting rows.
func (s *Service) Refused(ctx context.Context, p *Policy) ([]error, error) {
	f, err := s.inspect(ctx, p)
	if err == nil {
		err = s.Prove(ctx, &p.Target, &f.Found, new(upkeep.Plan))
	}
	return f.Refused, err
}

// plan is what the table itself shows.
func (f *found) plan() *Plan {
	p := f.policy
	plan := &Plan{
		Table: p.Table.String(), Column: p.Column, Set: f.setting.set, Unmarked: f.setting.unmarked, Rejects: p.Rejects(), Plan: upkeep.NewPlan(&f.Found),
	}
	u := f.updates
	if u == nil {
		return plan
	}
	plan.Triggers = append(plan.Triggers, u.Triggers...)
	if f.Index == "" && f.Survey.Rows <= upkeep.Unindexed {
		plan.Note("no index leads to rows without a mark: each pass reads the whole table, which is small; for a larger one: %s", p.indexSQL(f.setting, f.Survey.Columns))
	}
	if len(u.Indexed) > 0 {
		plan.Note("each mark is an UPDATE that writes all indexes anew, because %s has the column or asks for it: two to three times the WAL of the insert, and a dead row for autovacuum", strings.Join(u.Indexed, ", "))
	} else {
		plan.Note("each mark is an UPDATE: WAL, and a dead row for autovacuum; a fillfactor of 50 to 70 keeps it within its page")
	}
	if len(u.Publications) > 0 && len(u.NoIdentity) == 0 {
		plan.Note("publication %s sends updates: its readers get one for each mark", strings.Join(u.Publications, ", "))
	}
	return plan
}

// Lines is the plan for people, one fact a line.
func (p *Plan) Lines() []string {
	lines := upkeep.Lines{fmt.Sprintf("%s: set %s on delivered rows", p.Table, p.Column)}
	if p.Set != "" {
		lines.Add("set", "%s, where %s", p.Set, p.Unmarked)
	}
	lines.Due("unmarked", &p.Plan)
	if len(p.Rejects) > 0 {
		lines.Add("rejects", "dead letters are shown in %s", strings.Join(p.Rejects, ", "))
	}
	lines.Ways(&p.Plan)
	if len(p.Triggers) > 0 {
		lines.Add("triggers", "%s", strings.Join(p.Triggers, ", "))
	}
	lines.Remarks(&p.Plan)
	return lines
}
