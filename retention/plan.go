package retention

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
	Table   string `json:"table"`
	Then    Then   `json:"then"`
	Keep    string `json:"keep"`
	By      string `json:"by"`
	Where   string `json:"where,omitempty"`
	Archive string `json:"archive_table,omitempty"`

	Due     *int64        `json:"due_rows"` // null: not counted
	Oldest  *time.Time    `json:"oldest"`
	Undated int64         `json:"rows_without_time"`
	Letters int           `json:"dead_letters_waiting"`
	Rows    int64         `json:"estimated_rows"`
	Index   string        `json:"index"`
	Slots   []upkeep.Slot `json:"slots"`

	Triggers    []string         `json:"triggers"`
	ForeignKeys []string         `json:"foreign_keys"`
	Notes       []string         `json:"notes"`
	Refused     []upkeep.Refusal `json:"refused"`
}

// Plan finds out what would be done.
func (s *Service) Plan(ctx context.Context, p *Policy) (*Plan, []error, error) {
	f, err := s.inspect(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	plan := f.plan()
	if f.condition != "" {
		due, err := s.Surveyor.Due(ctx, p.Table, wal.QuoteIdentifier(f.by.Name), f.condition)
		if err != nil {
			return nil, nil, err
		}
		if due.Counted {
			plan.Due, plan.Oldest, plan.Undated = &due.Rows, due.Oldest, due.Undated
		} else {
			plan.Notes = append(plan.Notes, "counting the rows took too long and was given up")
		}
	}
	if f.survey != nil {
		if err := s.planProof(ctx, f, plan); err != nil {
			return nil, nil, err
		}
	}
	plan.Refused = upkeep.Refusals(f.refused)
	return plan, f.refused, nil
}

// Refused are the reasons for which no row of a table goes. They are what Plan shows, without
// counting rows.
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

// planProof asks what would keep the proof from being given.
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
		Table: p.Table.String(), Then: p.Then, Keep: p.Age(), By: p.By, Where: p.Where, Index: f.index,
		Slots: []upkeep.Slot{}, Triggers: []string{}, ForeignKeys: []string{}, Notes: []string{}, Refused: []upkeep.Refusal{},
	}
	if p.Then == Archive {
		plan.Archive = p.Archive.String()
	}
	s := f.survey
	if s == nil {
		return plan
	}
	plan.Rows = s.Rows
	plan.Triggers, plan.ForeignKeys = append(plan.Triggers, s.Triggers...), append(plan.ForeignKeys, s.ForeignKeys...)
	note := func(text string, args ...any) { plan.Notes = append(plan.Notes, fmt.Sprintf(text, args...)) }
	if f.condition != "" && f.index == "" && s.Rows <= unindexed {
		note("there is no index on %q: each run reads the whole table, which is small; for a larger one: %s", p.By, p.indexSQL())
	}
	if !s.MayLock && s.MayDelete {
		note("role %q may not leave locked rows out, and waits for them; GRANT UPDATE (%s) ON %s TO %s lets it", s.Role, wal.QuoteIdentifier(p.By), p.Table.SQL(), wal.QuoteIdentifier(s.Role))
	}
	if len(s.Deletes) > 0 && len(s.NoIdentity) == 0 {
		note("publication %s sends deletes: its readers get one for each row that goes", strings.Join(s.Deletes, ", "))
	}
	if s.Standbys.Hidden > 0 {
		note("the lag of %s is hidden from role %q; GRANT pg_read_all_stats TO %s shows it", wording.Count(s.Standbys.Hidden, "standby server"), s.Role, wal.QuoteIdentifier(s.Role))
	}
	return plan
}

// Lines is the plan for people, one fact a line.
func (p *Plan) Lines() (lines []string) {
	add := func(label, text string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-10s %s", label, fmt.Sprintf(text, args...)))
	}
	act := "delete"
	if p.Then == Archive {
		act = "archive to " + p.Archive
	}
	lines = append(lines, fmt.Sprintf("%s: %s rows older than %s", p.Table, act, p.Keep))
	by := p.By
	if p.Where != "" {
		by += ", where " + strings.Join(strings.Fields(p.Where), " ")
	}
	add("by", "%s", by)
	switch {
	case p.Due == nil:
		add("due", "not counted")
	case p.Oldest != nil:
		add("due", "%s, the oldest of %s", wording.Count(*p.Due, "row"), p.Oldest.Format(time.RFC3339))
	default:
		add("due", "%s", wording.Count(*p.Due, "row"))
	}
	if p.Undated > 0 {
		add("never due", "%s without a time", wording.Count(p.Undated, "row"))
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
	if len(p.ForeignKeys) > 0 {
		add("references", "%s", strings.Join(p.ForeignKeys, ", "))
	}
	for _, n := range p.Notes {
		add("note", "%s", n)
	}
	for i := range p.Refused {
		add("refused", "%s", p.Refused[i].Line())
	}
	return lines
}
