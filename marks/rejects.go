package marks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/deadletter/waiting"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

// counts are the types of a column that counts attempts, with the most that it holds.
var counts = map[string]int64{"smallint": 1<<15 - 1, "integer": 1<<31 - 1, "bigint": 1<<63 - 1}

// Rejects are the columns that are set on rejected rows.
func (p *Policy) Rejects() (columns []string) {
	return slices.DeleteFunc([]string{p.Error, p.Attempts}, func(name string) bool { return name == "" })
}

// rejects finds the columns that say that a row was rejected; nil: none do.
func (s *Service) rejects(ctx context.Context, f *found, l *leaf) (*maintenance.RejectedColumns, error) {
	p := l.policy
	if p.Error == "" {
		return nil, nil
	}
	to := &maintenance.RejectedColumns{ID: f.Identity.Column(), Error: p.Error, Attempts: p.Attempts}
	if !f.Identity.Known() {
		return nil, p.rejectsTarget().Mistake("error", "leave it out", "a dead letter of table %s does not name its row: the header id is not the text of one column", p.Table)
	}
	for _, c := range l.survey.Columns {
		if c.Name == to.ID {
			to.IDType = c.Type
		}
	}
	wording, err := p.rejectColumn(l.survey.Columns, "error", p.Error, "text or varchar", func(t string) bool {
		return t == "text" || strings.HasPrefix(t, "character varying")
	})
	if err != nil {
		return nil, err
	}
	to.ErrorType = wording.Type
	if p.Attempts != "" {
		number, err := p.rejectColumn(l.survey.Columns, "attempts", p.Attempts, "smallint, integer or bigint", func(t string) bool { return counts[t] > 0 })
		if err != nil {
			return nil, err
		}
		to.MostAttempts = counts[number.Type]
	}
	return to, s.mayReject(ctx, f, l, to)
}

// rejectsTarget has mistakes name the keys of rejects.
func (p *Policy) rejectsTarget() *upkeep.Target {
	target := p.Target
	target.Path = strings.TrimSuffix(target.Path, "mark") + "rejects"
	return &target
}

// rejectColumn is one of the columns, if its type is fit.
func (p *Policy) rejectColumn(columns []maintenance.Column, key, name, allowed string, fits func(string) bool) (maintenance.Column, error) {
	target := p.rejectsTarget()
	i := slices.IndexFunc(columns, func(c maintenance.Column) bool { return c.Name == name })
	switch {
	case i < 0:
		return maintenance.Column{}, target.Mistake(key, "name a column of type "+allowed, "table %s has no column %q", p.Table, name)
	case columns[i].Generated || !fits(columns[i].Type):
		return maintenance.Column{}, target.Mistake(key, "allowed: an ordinary column of type "+allowed, "column %q of table %s is %s", name, p.Table, columns[i].Type)
	}
	return columns[i], nil
}

// mayReject refuses columns that may not be written, or whose change would be more than a note.
func (s *Service) mayReject(ctx context.Context, f *found, l *leaf, to *maintenance.RejectedColumns) error {
	p := l.policy
	for key, name := range map[string]string{"error": to.Error, "attempts": to.Attempts} {
		if name == "" {
			continue
		}
		u, err := s.Surveyor.Updates(ctx, l.survey.OID, name)
		if err != nil {
			return err
		}
		if u.Key || u.PartitionKey {
			return p.rejectsTarget().Mistake(key, "name another column", "column %q of table %s is part of its primary key, or of a partition key", name, p.Table)
		}
		if !u.MayUpdate {
			f.Refused = append(f.Refused, p.Refuse(fault.ReasonPermission, fmt.Sprintf("run: GRANT UPDATE (%s) ON %s TO %s", wal.QuoteIdentifier(name), p.Table.SQL(), wal.QuoteIdentifier(l.survey.Role)), "role %q lacks a right", l.survey.Role))
		}
	}
	return nil
}

// errorText says why a row was rejected, and where its letter is. Another letter of the row is
// another text, so that it is counted again. The text has nothing of the row in it.
func errorText(n *waiting.Named) string {
	return fmt.Sprintf("%s, dead letter %d/%d", n.Reason, n.Partition, n.Offset)
}

// reject says of the rows of letters that wait that they were rejected. A row that somebody has
// locked is left for the next look at the table.
func (s *Service) reject(ctx context.Context, t *table, p *part) (written int, err error) {
	to := p.rejects
	if to == nil {
		return 0, nil
	}
	var batch []maintenance.Rejected
	for _, n := range p.records.Named() {
		if p.said[n.Location] {
			continue
		}
		p.said[n.Location] = true
		if batch = append(batch, maintenance.Rejected{ID: n.Event, Error: errorText(&n)}); len(batch) == t.limits.BatchRows {
			n, err := rejectAll(ctx, p.session, to, batch)
			written, batch = written+n, batch[:0]
			if err != nil {
				return written, err
			}
		}
	}
	n, err := rejectAll(ctx, p.session, to, batch)
	return written + n, err
}

type rejecter interface {
	Reject(ctx context.Context, to *maintenance.RejectedColumns, all []maintenance.Rejected) (int, error)
}

// rejectAll leaves out what is no value of the column's type: such an id is of no row.
func rejectAll(ctx context.Context, session rejecter, to *maintenance.RejectedColumns, batch []maintenance.Rejected) (written int, err error) {
	if len(batch) == 0 {
		return 0, nil
	}
	written, err = session.Reject(ctx, to, batch)
	if err == nil || !strings.HasPrefix(postgres.SQLState(err), "22") {
		return written, err
	}
	if len(batch) == 1 {
		return 0, nil
	}
	half := len(batch) / 2
	first, errFirst := rejectAll(ctx, session, to, batch[:half])
	second, errSecond := rejectAll(ctx, session, to, batch[half:])
	return first + second, errors.Join(errFirst, errSecond)
}
