package sample

import (
	"context"
	"fmt"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"slices"
	"strings"
)

// Finder looks for rows by the value of a column, all over one connection, which it makes
// when it is first asked and again after it was lost. The shape of a table is that at its
// first look. One goroutine uses it.
type Finder struct {
	cfg    postgres.Config
	s      *sampler
	shapes map[int]*wal.Relation
}

// NewFinder asks nobody yet.
func NewFinder(cfg postgres.Config) *Finder {
	return &Finder{cfg: cfg, shapes: make(map[int]*wal.Relation)}
}

// Close ends the connection.
func (f *Finder) Close() {
	if f.s != nil {
		postgres.CloseQuietly(f.s.q.Conn)
		f.s = nil
	}
}

// open makes sure of a connection, for statements of ctx.
func (f *Finder) open(ctx context.Context) error {
	if f.s != nil && f.s.q.Conn.IsClosed() {
		f.s = nil
	}
	if f.s != nil {
		f.s.q.Ctx = ctx
		return nil
	}
	s, err := newSampler(ctx, f.cfg)
	if err != nil {
		return err
	}
	f.s = s
	if err := s.q.Exec(limitStatements()); err != nil {
		f.Close()
		return postgres.Classify("prepare to look for rows", err)
	}
	return nil
}

// Describe is the shape of cfg.Tables[table], as the package's Describe reads it.
func (f *Finder) Describe(ctx context.Context, table int) (*wal.Relation, error) {
	if rel := f.shapes[table]; rel != nil {
		return rel, nil
	}
	if err := f.open(ctx); err != nil {
		return nil, err
	}
	rel, _, err := catalog.DescribeTable(f.s.q, f.s.version, f.cfg, table)
	if err != nil {
		return nil, err
	}
	f.shapes[table] = rel
	return rel, nil
}

// FindRow reads the row of cfg.Tables[table] whose column has a value, in the form of
// NewestRow and with its needs. It is nil when there is none; of several it takes
// any.
func (f *Finder) FindRow(ctx context.Context, table int, column, value string) (*wal.Row, error) {
	rel, err := f.Describe(ctx, table)
	if err != nil {
		return nil, err
	}
	if err := f.open(ctx); err != nil {
		return nil, err
	}
	name := f.cfg.Tables[table]
	op := "find a row of table " + name.String()
	if !slices.ContainsFunc(rel.Columns, func(c wal.Column) bool { return c.Name == column }) {
		return nil, &fault.Error{Op: op, Err: fmt.Errorf("it has no column %q", column)}
	}
	names := make([]string, len(rel.Columns), len(rel.Columns)+1)
	for i, c := range rel.Columns {
		names[i] = wal.QuoteIdentifier(c.Name)
	}
	fields := strings.Join(append(names, "pg_catalog.now()"), ", ")
	// The value comes from a row, so it is a parameter; the server gives it the
	// column's type, and with it the column's index.
	result := f.s.q.Conn.ExecParams(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s = $1 LIMIT 1", fields, name.SQL(), wal.QuoteIdentifier(column)),
		[][]byte{[]byte(value)}, nil, nil, nil).Read()
	if result.Err != nil {
		return nil, postgres.PermissionHint(postgres.Classify(op, result.Err), f.s.grant(name))
	}
	if len(result.Rows) == 0 {
		return nil, nil
	}
	row := make(postgres.Cells, len(result.Rows[0]))
	for i, field := range result.Rows[0] {
		row[i] = postgres.Cell{Text: string(field), Null: field == nil}
	}
	return sampled(rel, row), nil
}
