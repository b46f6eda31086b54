package marks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
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
	if err := s.count(ctx, f, plan); err != nil {
		return nil, nil, err
	}
	if err := s.Prove(ctx, &p.Target, &f.Found, &plan.Plan); err != nil {
		return nil, nil, err
	}
	plan.Refused = upkeep.Refusals(f.Refused)
	return plan, f.Refused, nil
}

// count adds up the rows of all tables that have some.
func (s *Service) count(ctx context.Context, f *found, plan *Plan) error {
	all, some := maintenance.Due{Counted: true}, false
	for i := range f.leaves {
		l := &f.leaves[i]
		if !l.survey.MaySelect {
			continue
		}
		age := "NULL::pg_catalog.timestamptz"
		if name := l.age(); name != "" {
			age = wal.QuoteIdentifier(name)
		}
		due, err := s.Surveyor.CountDue(ctx, l.policy.Table, age, l.setting.unmarked)
		if err != nil {
			return err
		}
		some, all.Rows, all.Counted = true, all.Rows+due.Rows, all.Counted && due.Counted
		if due.Oldest != nil && (all.Oldest == nil || due.Oldest.Before(*all.Oldest)) {
			all.Oldest = due.Oldest
		}
	}
	if some {
		plan.Counted(all)
	}
	return nil
}

// Refused are the reasons for which no mark is set, and alone those for which partitions are left alone.
// They are what Plan shows, without counting rows.
func (s *Service) Refused(ctx context.Context, p *Policy) (refused, alone []error, err error) {
	f, err := s.inspect(ctx, p)
	if err == nil {
		err = s.Prove(ctx, &p.Target, &f.Found, new(upkeep.Plan))
	}
	return f.Refused, f.Alone, err
}

// plan is what the table itself shows. What is true of its partitions is said once.
func (f *found) plan() *Plan {
	p := f.policy
	plan := &Plan{Table: p.Table.String(), Column: p.Column, Rejects: p.Rejects(), Plan: upkeep.NewPlan(&f.Found)}
	var indexed, publications []string
	unindexed := false
	if len(f.leaves) > 0 && f.partitioned() {
		plan.Rows = 0
	}
	for i := range f.leaves {
		l := &f.leaves[i]
		u := l.updates
		plan.Set, plan.Unmarked = l.setting.set, l.setting.unmarked
		plan.Triggers, indexed = append(plan.Triggers, u.Triggers...), append(indexed, u.Indexed...)
		if len(u.NoIdentity) == 0 {
			publications = append(publications, u.Publications...)
		}
		if l.index == "" && l.survey.Rows <= upkeep.Unindexed && !unindexed {
			unindexed = true
			plan.Note("no index leads to rows without a mark: each pass reads the whole table, which is small; for a larger one: %s", l.policy.indexSQL(l.setting, l.survey.Columns))
		}
		if f.partitioned() {
			plan.Rows += max(0, l.survey.Rows)
		}
	}
	if len(f.leaves) == 0 {
		return plan
	}
	plan.Triggers = distinct(plan.Triggers)
	if indexed = distinct(indexed); len(indexed) > 0 {
		plan.Note("each mark is an UPDATE that writes all indexes anew, because %s has the column or asks for it: two to three times the WAL of the insert, and a dead row for autovacuum", strings.Join(indexed, ", "))
	} else {
		plan.Note("each mark is an UPDATE: WAL, and a dead row for autovacuum; a fillfactor of 50 to 70 keeps it within its page")
	}
	if publications = distinct(publications); len(publications) > 0 {
		plan.Note("publication %s sends updates: its readers get one for each mark", strings.Join(publications, ", "))
	}
	return plan
}

func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
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
	lines.Remarks(&p.Plan)
	return lines
}
