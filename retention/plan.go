package retention

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Plan is what would be done in one table now, and what stands in the way.
type Plan struct {
	Table   string `json:"table"`
	Then    Then   `json:"then"`
	Keep    string `json:"keep"`
	By      string `json:"by"`
	Where   string `json:"where,omitempty"`
	Archive string `json:"archive_table,omitempty"`
	Export  string `json:"export,omitempty"`

	Undated     int64    `json:"rows_without_time"`
	Past        []string `json:"partitions_due,omitempty"`
	Ahead       int      `json:"partitions_ahead,omitempty"`
	CreateAhead int      `json:"create_ahead,omitempty"`
	ForeignKeys []string `json:"foreign_keys"`
	upkeep.Plan
}

// Plan finds out what would be done.
func (s *Service) Plan(ctx context.Context, p *Policy) (*Plan, []error, error) {
	f, err := s.inspect(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	plan := f.plan()
	if f.condition != "" {
		if err := f.Sort(s.count(ctx, f, plan)); err != nil {
			return nil, nil, err
		}
	}
	if err := s.prove(ctx, f, &plan.Plan); err != nil {
		return nil, nil, err
	}
	plan.Refused = upkeep.Refusals(f.Refused)
	return plan, f.Refused, nil
}

// Refused are the reasons for which no row of a table goes, and alone those for which partitions are
// left alone. They are what Plan shows, without counting rows.
func (s *Service) Refused(ctx context.Context, p *Policy) (refused, alone []error, err error) {
	f, err := s.inspect(ctx, p)
	if err == nil {
		err = s.prove(ctx, f, new(upkeep.Plan))
	}
	return f.Refused, f.Alone, err
}

// prove finds out what forbids the removal of rows beside the table itself.
func (s *Service) prove(ctx context.Context, f *found, plan *upkeep.Plan) error {
	if f.store != nil {
		if err := f.store.Probe(ctx); err != nil {
			err = exportFailed(f.policy, err)
			if ctx.Err() != nil { // nothing is left for PostgreSQL, which is not to blame
				return err
			}
			f.Refused = append(f.Refused, err)
		}
	}
	return s.Prove(ctx, &f.policy.Target, &f.Found, plan)
}

// count adds up the rows of all tables that have some.
func (s *Service) count(ctx context.Context, f *found, plan *Plan) error {
	all := maintenance.Due{Counted: true}
	for i := range f.leaves {
		due, err := s.Surveyor.CountDue(ctx, f.leaves[i].table, wal.QuoteIdentifier(f.by.Name), f.condition)
		if err != nil {
			return f.policy.readsOnly(err)
		}
		all.Rows, all.Undated, all.Counted = all.Rows+due.Rows, all.Undated+due.Undated, all.Counted && due.Counted
		if due.Oldest != nil && (all.Oldest == nil || due.Oldest.Before(*all.Oldest)) {
			all.Oldest = due.Oldest
		}
	}
	plan.Counted(all)
	plan.Undated = all.Undated
	return nil
}

// plan is what the table itself shows.
func (f *found) plan() *Plan {
	p := f.policy
	plan := &Plan{
		Table: p.Table.String(), Then: p.Then, Keep: p.Age(), By: p.By, Where: p.Where, CreateAhead: p.Ahead, Export: p.Export.To,
		ForeignKeys: []string{}, Plan: upkeep.NewPlan(&f.Found),
	}
	if p.Then == Archive {
		plan.Archive = p.Archive.String()
	}
	s := f.Survey
	if s == nil {
		return plan
	}
	plan.Triggers, plan.ForeignKeys = append(plan.Triggers, s.Triggers...), append(plan.ForeignKeys, s.ForeignKeys...)
	if f.partitions != nil && p.Then.Partitions() {
		for _, one := range f.partitions.All {
			switch {
			case one.Past:
				plan.Past = append(plan.Past, one.Table.Name)
			case one.Ahead:
				plan.Ahead++
			}
		}
	}
	if s.Kind == "p" {
		plan.Rows = 0
	}
	for i := range f.leaves {
		if f.leaves[i].survey != s {
			plan.Rows += max(0, f.leaves[i].survey.Rows)
		}
	}
	switch {
	case p.Blocks:
		plan.Note("%s.scan: blocks: each run reads the whole table", p.Path)
	case f.condition != "" && f.Index == "" && s.Kind == "r" && s.Rows <= upkeep.Unindexed:
		plan.Note("there is no index on %q: each run reads the whole table, which is small; for a larger one: %s", p.By, p.indexSQL())
	}
	if !s.MayLock && s.MayDelete && !p.Then.Partitions() {
		plan.Note("role %q may not leave locked rows out, and waits for them; GRANT UPDATE (%s) ON %s TO %s lets it", s.Role, wal.QuoteIdentifier(p.By), p.Table.SQL(), wal.QuoteIdentifier(s.Role))
	}
	if len(s.Deletes) > 0 && len(s.NoIdentity) == 0 {
		plan.Note("publication %s sends deletes: its readers get one for each row that goes", strings.Join(s.Deletes, ", "))
	}
	return plan
}

// Lines is the plan for people, one fact a line.
func (p *Plan) Lines() []string {
	act := map[Then]string{Delete: "delete rows", Archive: "archive to " + p.Archive + " rows", Export: "export to " + p.Export + " and delete rows", DropPartition: "drop partitions", DetachPartition: "detach partitions"}[p.Then]
	lines := upkeep.Lines{fmt.Sprintf("%s: %s older than %s", p.Table, act, p.Keep)}
	by := p.By
	if p.Where != "" {
		by += ", where " + strings.Join(strings.Fields(p.Where), " ")
	}
	lines.Add("by", "%s", by)
	if p.Then.Partitions() {
		due := wording.Count(len(p.Past), "partition")
		if len(p.Past) > 0 {
			due += ": " + strings.Join(p.Past, ", ")
		}
		lines.Add("due", "%s", due)
		lines.Add("ahead", "%s of %d", wording.Count(p.Ahead, "partition"), p.CreateAhead)
		if p.Due != nil && *p.Due > 0 {
			lines.Due("default", &p.Plan)
		}
	} else {
		lines.Due("due", &p.Plan)
	}
	if p.Undated > 0 {
		lines.Add("never due", "%s without a time, or with an infinite one", wording.Count(p.Undated, "row"))
	}
	lines.Ways(&p.Plan)
	if len(p.ForeignKeys) > 0 {
		lines.Add("references", "%s", strings.Join(p.ForeignKeys, ", "))
	}
	lines.Remarks(&p.Plan)
	return lines
}
