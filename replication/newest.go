package replication

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Newest reads the rows of cfg.Tables[table] that were written last, newest
// first, at most limit: NewestRow says what that means and needs.
func Newest(ctx context.Context, cfg Config, table, limit int) ([]*Row, error) {
	s, err := newSampler(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(s.q.conn)
	rel, _, err := describeTable(s.q, s.version, cfg, table)
	if err != nil {
		return nil, err
	}
	op := "read the newest rows of table " + cfg.Tables[table].String()
	if err := s.q.exec(limitStatements()); err != nil {
		return nil, classify(op, err)
	}
	names := make([]string, len(rel.Columns), len(rel.Columns)+1)
	for i, c := range rel.Columns {
		names[i] = doubleQuoted(c.Name)
	}
	fields := strings.Join(append(names, "pg_catalog.now()"), ", ")
	searches, err := s.searches(cfg.Tables[table], rel)
	if err != nil {
		return nil, err
	}
	for i, search := range searches {
		rows, err := s.q.all(fmt.Sprintf("SELECT %s FROM %s %s LIMIT %d", fields, cfg.Tables[table].sql(), search, limit))
		if timedOut(err) && i+1 < len(searches) {
			continue // too many rows to sort
		}
		if err != nil {
			return nil, permissionHint(classify(op, err), s.grant(cfg.Tables[table]))
		}
		found := make([]*Row, len(rows))
		for i, row := range rows {
			found[i] = sampled(rel, row)
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

// Largest is the size in bytes of the largest value of a column of rel, as the
// stream sends it or, for bytea, as it is. It reads the whole table; complete is
// false when that would have taken too long. It needs SELECT on the table.
func Largest(ctx context.Context, cfg Config, rel *Relation, column string) (size int64, complete bool, err error) {
	table := Table{Schema: rel.Namespace, Name: rel.Name}
	i := slices.IndexFunc(rel.Columns, func(c Column) bool { return c.Name == column })
	if i < 0 {
		return 0, false, &Error{Op: "measure", Subject: "table " + table.String(), Err: fmt.Errorf("it has no column %q", column)}
	}
	conn, err := connect(ctx, cfg, false)
	if err != nil {
		return 0, false, err
	}
	defer closeQuietly(conn)
	q := querier{ctx: ctx, conn: conn}
	value := doubleQuoted(column)
	if rel.Columns[i].TypeName != "bytea" {
		value += "::text"
	}
	if err := q.exec(limitStatements()); err != nil {
		return 0, false, classify("measure table "+table.String(), err)
	}
	row, err := q.one(fmt.Sprintf("SELECT coalesce(max(octet_length(%s)), 0) FROM %s", value, table.sql()))
	if timedOut(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, classify("measure table "+table.String(), err)
	}
	size, err = strconv.ParseInt(row.text(0), 10, 64)
	return size, err == nil, err
}
