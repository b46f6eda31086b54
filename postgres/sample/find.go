package sample

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
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
	// A policy has to be an error: a row that it hides would look deleted.
	if err := s.q.Exec("SET row_security = off; " + limitStatements()); err != nil {
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

// Named is the name that the table with an OID has now; ok is false if there is no such table.
func (f *Finder) Named(ctx context.Context, oid uint32) (name wal.Table, ok bool, err error) {
	if err := f.open(ctx); err != nil {
		return name, false, err
	}
	rows, err := f.s.q.All(fmt.Sprintf(`SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %d AND c.relkind IN ('r', 'p')`, oid))
	if err != nil {
		return name, false, postgres.Classify("look for the table of a dead letter", err)
	}
	if len(rows) == 0 {
		return name, false, nil
	}
	return wal.Table{Schema: rows[0][0].Text, Name: rows[0][1].Text}, true, nil
}

// FindRows calls visit with each row of cfg.Tables[table] whose column has a value, in the form
// of NewestRow and with its needs, in no order, until visit returns an error. visit owns the row, and must not use the
// Finder. Where row-level security applies to the role, it is an error.
func (f *Finder) FindRows(ctx context.Context, table int, column, value string, visit func(*wal.Row) error) error {
	rel, err := f.Describe(ctx, table)
	if err != nil {
		return err
	}
	if err := f.open(ctx); err != nil {
		return err
	}
	name := f.cfg.Tables[table]
	op := "find a row of table " + name.String()
	if !slices.ContainsFunc(rel.Columns, func(c wal.Column) bool { return c.Name == column }) {
		return &fault.Error{Op: op, Err: fmt.Errorf("it has no column %q", column)}
	}
	names := make([]string, len(rel.Columns), len(rel.Columns)+1)
	for i, c := range rel.Columns {
		names[i] = wal.QuoteIdentifier(c.Name)
	}
	fields := strings.Join(append(names, "pg_catalog.now()"), ", ")
	// The value comes from a row, so it is a parameter; the server gives it the
	// column's type, and with it the column's index.
	result := f.s.q.Conn.ExecParams(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s = $1", fields, name.SQL(), wal.QuoteIdentifier(column)),
		[][]byte{[]byte(value)}, nil, nil, nil)
	for err == nil && result.NextRow() {
		row := make(postgres.Cells, len(rel.Columns)+1)
		for i, field := range result.Values() {
			row[i] = postgres.Cell{Text: string(field), Null: field == nil}
		}
		err = visit(sampled(rel, row))
	}
	if _, failed := result.Close(); err == nil && failed != nil {
		return f.refused(op, name, failed)
	}
	return err
}

// refused explains why the rows of a table cannot be read.
func (f *Finder) refused(op string, name wal.Table, err error) error {
	if catalog.UnderPolicy(err) {
		role := "the role that connects"
		if row, err := f.s.q.One("SELECT current_user"); err == nil {
			role = fmt.Sprintf("role %q", row.Text(0))
		}
		return catalog.PolicyError(op, name, role, "the row")
	}
	return postgres.PermissionHint(postgres.Classify(op, err), f.s.grant(name))
}
