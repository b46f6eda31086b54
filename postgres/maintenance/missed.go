package maintenance

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/proof"
)

// mostMissed is how many of the rows that Act left are remembered.
const mostMissed = 1000

// rememberMissed remembers those of the rows whose ids are not among those of the rows that were acted on.
func (s *Session) rememberMissed(rows []proof.Row, acted [][][]byte) {
	if len(acted) == len(rows) {
		return
	}
	done := make(map[string]bool, len(acted))
	for _, row := range acted {
		done[string(row[0])] = true
	}
	for _, r := range rows {
		if !r.NoID && !done[r.ID] && len(s.missed) < mostMissed {
			s.missed = append(s.missed, r.ID)
		}
	}
}

// Missed returns the ids of rows that Act has left since the last call: somebody has changed, deleted
// or locked them.
func (s *Session) Missed() []string {
	missed := s.missed
	s.missed = nil
	return missed
}

// Marked divides ids into those of rows that meet Work.IsSet, and the rest. Of rows that Act has left,
// the first ones were set by somebody else: no other session of ours has the lock.
func (s *Session) Marked(ctx context.Context, ids []string) (marked, rest []string, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	s.q.Ctx = ctx
	literals := make([]string, len(ids)) // they take the type of the column, so that its index is used
	for i, id := range ids {
		literals[i] = postgres.QuoteLiteral(id)
	}
	rows, err := s.readOnly("", fmt.Sprintf("SELECT DISTINCT %s FROM ONLY %s WHERE %s IN (%s) AND tableoid = '%d'::oid AND (%s)",
		s.id(), s.work.Table.SQL(), s.work.ID, strings.Join(literals, ", "), s.oid, s.work.IsSet))
	if err != nil {
		return nil, nil, postgres.Classify("look for marks in "+s.subject(), err)
	}
	is := make(map[string]bool, len(rows))
	for _, row := range rows {
		is[string(row[0])] = true
	}
	for _, id := range ids {
		if is[id] {
			marked = append(marked, id)
		} else {
			rest = append(rest, id)
		}
	}
	return marked, rest, nil
}

// HasIndex reports whether an index of the whole table leads to rows by a column.
func (s *Surveyor) HasIndex(ctx context.Context, oid uint32, column string) (bool, error) {
	s.session.q.Ctx = ctx
	row, err := s.session.q.One(fmt.Sprintf(`SELECT EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = %d AND i.indisvalid AND i.indpred IS NULL AND a.attname = %s)`, oid, postgres.QuoteLiteral(column)))
	if err != nil {
		return false, postgres.Classify("look at the indexes", err)
	}
	return row.Bool(0), nil
}
