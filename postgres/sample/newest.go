package sample

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// NewestRows reads the rows of cfg.Tables[table] that were written last, newest
// first, at most limit: NewestRow says what that means and needs.
func NewestRows(ctx context.Context, cfg postgres.Config, table, limit int) ([]*wal.Row, error) {
	s, err := newSampler(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer postgres.CloseQuietly(s.q.Conn)
	rel, _, err := catalog.DescribeTable(s.q, s.version, cfg, table)
	if err != nil {
		return nil, err
	}
	op := "read the newest rows of table " + cfg.Tables[table].String()
	if err := s.q.Exec(limitStatements()); err != nil {
		return nil, postgres.Classify(op, err)
	}
	names := make([]string, len(rel.Columns), len(rel.Columns)+1)
	for i, c := range rel.Columns {
		names[i] = wal.QuoteIdentifier(c.Name)
	}
	fields := strings.Join(append(names, "pg_catalog.now()"), ", ")
	searches, err := s.searches(cfg.Tables[table], rel)
	if err != nil {
		return nil, err
	}
	for i, search := range searches {
		rows, err := s.q.All(fmt.Sprintf("SELECT %s FROM %s %s LIMIT %d", fields, cfg.Tables[table].SQL(), search, limit))
		if timedOut(err) && i+1 < len(searches) {
			continue // too many rows to sort
		}
		if err != nil {
			return nil, postgres.PermissionHint(postgres.Classify(op, err), s.grant(cfg.Tables[table]))
		}
		found := make([]*wal.Row, len(rows))
		for i, row := range rows {
			found[i] = sampled(rel, row)
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

// LargestValue is the size in bytes of the largest value of a column of rel, as the
// stream sends it or, for bytea, as it is. It reads the whole table; complete is
// false when that would have taken too long. It needs SELECT on the table.
func LargestValue(ctx context.Context, cfg postgres.Config, rel *wal.Relation, column string) (size int64, complete bool, err error) {
	table := wal.Table{Schema: rel.Namespace, Name: rel.Name}
	i := slices.IndexFunc(rel.Columns, func(c wal.Column) bool { return c.Name == column })
	if i < 0 {
		return 0, false, &fault.Error{Op: "measure", Subject: "table " + table.String(), Err: fmt.Errorf("it has no column %q", column)}
	}
	conn, err := postgres.Connect(ctx, cfg, false)
	if err != nil {
		return 0, false, err
	}
	defer postgres.CloseQuietly(conn)
	q := postgres.Querier{Ctx: ctx, Conn: conn}
	value := wal.QuoteIdentifier(column)
	if rel.Columns[i].TypeName != "bytea" {
		value += "::text"
	}
	if err := q.Exec(limitStatements()); err != nil {
		return 0, false, postgres.Classify("measure table "+table.String(), err)
	}
	row, err := q.One(fmt.Sprintf("SELECT coalesce(max(octet_length(%s)), 0) FROM %s", value, table.SQL()))
	if timedOut(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, postgres.Classify("measure table "+table.String(), err)
	}
	size, err = strconv.ParseInt(row.Text(0), 10, 64)
	return size, err == nil, err
}
