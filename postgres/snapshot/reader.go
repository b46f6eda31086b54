package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
)

// Reader is one connection that has the Holder's snapshot. One goroutine uses it.
type Reader struct {
	q postgres.Querier
}

// Close ends the connection, also inside a reading.
func (r *Reader) Close() { postgres.CloseQuietly(r.q.Conn) }

// Count counts the rows; exact is false where that took longer than the patience, and then the
// Reader is of no more use.
func (r *Reader) Count(ctx context.Context, s *Selection, after, upTo Tuple, patience time.Duration) (n int64, exact bool, err error) {
	r.q.Ctx = ctx
	row, err := r.q.One(fmt.Sprintf("SET LOCAL statement_timeout = %d; SELECT count(*) FROM %s WHERE %s", max(1, patience.Milliseconds()), s.from, s.condition(after, upTo)))
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "57014" {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, classify(s, err)
	}
	n, err = strconv.ParseInt(row.Text(0), 10, 64)
	if err == nil {
		err = postgres.Classify("count rows", r.q.Exec("SET LOCAL statement_timeout = 0"))
	}
	return n, err == nil, err
}

// Last is the place of the last row; nil without rows, and in an order by place.
func (r *Reader) Last(ctx context.Context, s *Selection) (Tuple, error) {
	if len(s.Order.By) == 0 {
		return nil, nil
	}
	r.q.Ctx = ctx
	rows, err := r.q.All("SELECT " + strings.TrimPrefix(s.Order.fields(), ", ") + " FROM " + s.from + " WHERE " + s.condition(nil, nil) + s.Order.sorted(true) + " LIMIT 1")
	if err != nil || len(rows) == 0 {
		return nil, classify(s, err)
	}
	at := make(Tuple, len(rows[0]))
	for i, cell := range rows[0] {
		if !cell.Null {
			at[i] = &cell.Text
		}
	}
	return at, nil
}

// PlacesWithin tells of places which lie after one and not after another.
func (r *Reader) PlacesWithin(ctx context.Context, o *Order, places []Tuple, after, upTo Tuple) ([]bool, error) {
	if len(places) == 0 {
		return nil, nil
	}
	r.q.Ctx = ctx
	var b strings.Builder
	b.WriteString("SELECT " + o.between(after, upTo) + " FROM (VALUES ")
	for n, at := range places {
		if n > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "(%d", n)
		for i, c := range o.By {
			value := "NULL::" + c.Type
			if at[i] != nil {
				value = c.literal(*at[i])
			}
			b.WriteString(", " + value)
		}
		b.WriteString(")")
	}
	b.WriteString(") v(\"the place\"" + o.fields() + ") ORDER BY \"the place\"")
	rows, err := r.q.All(b.String())
	if err != nil {
		return nil, postgres.Classify("compare the places of rows", err)
	}
	within := make([]bool, len(rows))
	for i, row := range rows {
		within[i] = row[0].Text == "t"
	}
	return within, nil
}

// Rows is a reading. One goroutine uses it.
type Rows struct {
	of     *Selection
	all    *pgconn.MultiResultReader
	result *pgconn.ResultReader
	beside [][]byte
	failed error
}

// Read reads the rows after one place and not after another, in their order. The connection's
// buffers bound what is in memory, whatever the table.
func (r *Reader) Read(ctx context.Context, s *Selection, after, upTo Tuple) *Rows {
	rows := &Rows{of: s, all: r.q.Conn.Exec(ctx, s.query(after, upTo))}
	if rows.all.NextResult() {
		rows.result = rows.all.ResultReader()
	}
	return rows
}

// Next returns the next row: the columns of the stream, then those of the order. The bytes are
// good until the next call. It returns nil at the end; Err reports whether that is one.
func (r *Rows) Next() (columns, order [][]byte) {
	if r.result == nil {
		r.close()
		return nil, nil
	}
	if !r.result.NextRow() {
		r.result = nil
		r.close()
		return nil, nil
	}
	values := r.result.Values()
	n := len(values) - len(r.of.Beside)
	values, r.beside = values[:n], values[n:]
	n -= len(r.of.Order.By)
	return values[:min(n, len(r.of.Relation.Columns))], values[n:]
}

// Beside is what Selection.Beside gives for the row.
func (r *Rows) Beside() [][]byte { return r.beside }

func (r *Rows) close() {
	if r.all != nil {
		r.failed = classify(r.of, r.all.Close())
		r.all = nil
	}
}

// Err is why the reading ended before the last row; nil: it did not.
func (r *Rows) Err() error { return r.failed }

// SQLError is what the server says of SQL that the operator wrote.
type SQLError struct {
	Table wal.Table
	Err   error
}

func (e *SQLError) Error() string { return fmt.Sprintf("read table %s: %v", e.Table, e.Err) }
func (e *SQLError) Unwrap() error { return e.Err }

// classify describes what the server says of a reading.
func classify(s *Selection, err error) error {
	if err == nil {
		return nil
	}
	op := "read rows of table " + s.Name.String()
	if catalog.UnderPolicy(err) {
		return catalog.PolicyError(op, s.Name, "the role that connects", "rows")
	}
	const insufficientPrivilege = "42501"
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code != insufficientPrivilege && len(pg.Code) == 5 &&
		slices.Contains([]string{"0A", "21", "22", "25", "2F", "38", "39", "42", "P0"}, pg.Code[:2]) {
		return &SQLError{s.Name, fmt.Errorf("the server refuses the condition or the order: %s (SQLSTATE %s)", fault.OneLine(pg.Message), pg.Code)}
	}
	return postgres.PermissionHint(postgres.Classify(op, err), "run the output of `cdc-relay sql --for "+s.command+"`")
}
