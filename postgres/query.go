package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier runs SQL in the simple protocol, the only one that a walsender takes.
// That rules out parameters: every value in the text is a name from the
// configuration, through QuoteLiteral.
type Querier struct {
	Ctx  context.Context
	Conn *pgconn.PgConn
}

// Cell is one value of a result.
type Cell struct {
	Text string
	Null bool
}

// Cells are the values of one row.
type Cells []Cell

// Row is one result row; the first value that does not parse is kept in Err.
type Row struct {
	Cells Cells
	Err   error
}

// ErrNoRow is the error of One where the result is empty.
var ErrNoRow = errors.New("no row")

// All returns the rows of the last statement in sql.
func (q Querier) All(sql string) ([]Cells, error) {
	results, err := q.Conn.Exec(q.Ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) == 0 {
		return nil, nil
	}
	return CellsOf(results[len(results)-1]), nil
}

// Each runs statements in one message, and returns the rows of each: on a busy server each answer is waited
// for. They are one transaction where none is open.
func (q Querier) Each(statements []string) ([][]Cells, error) {
	results, err := q.Conn.Exec(q.Ctx, strings.Join(statements, ";\n")).ReadAll()
	if err != nil {
		return nil, err
	}
	rows := make([][]Cells, len(results))
	for i, result := range results {
		rows[i] = CellsOf(result)
	}
	return rows, nil
}

// Together runs statements, a transaction among them, in one message, and returns the result of each. Where one
// fails the transaction is rolled back.
func (q Querier) Together(sql string) ([]*pgconn.Result, error) {
	results, err := q.Conn.Exec(q.Ctx, sql).ReadAll()
	if err != nil {
		_ = q.Exec("ROLLBACK") // a lost connection rolls back too
	}
	return results, err
}

// CellsOf are the rows of one statement.
func CellsOf(result *pgconn.Result) []Cells {
	rows := make([]Cells, 0, len(result.Rows))
	for _, values := range result.Rows {
		row := make(Cells, len(values))
		for i, value := range values {
			row[i] = Cell{Text: string(value), Null: value == nil}
		}
		rows = append(rows, row)
	}
	return rows
}

// One returns the first row, or ErrNoRow.
func (q Querier) One(sql string) (*Row, error) {
	rows, err := q.All(sql)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, ErrNoRow
	}
	return &Row{Cells: rows[0]}, nil
}

// Exec runs statements whose rows are of no interest.
func (q Querier) Exec(sql string) error {
	_, err := q.All(sql)
	return err
}

func (r *Row) setError(name string, err error) {
	if err != nil && r.Err == nil {
		r.Err = &fault.Error{Kind: fault.KindProtocol, Op: "read " + name + " from the catalog", Err: err}
	}
}

// Int is the i-th value; name is the one that an error gives it.
func (r *Row) Int(name string, i int) int {
	n, err := strconv.Atoi(r.Cells[i].Text)
	r.setError(name, err)
	return n
}

// LSN is the i-th value; NULL is zero.
func (r *Row) LSN(name string, i int) wal.LSN {
	if r.Cells[i].Null {
		return 0
	}
	lsn, err := wal.ParseLSN(r.Cells[i].Text)
	r.setError(name, err)
	return lsn
}

// Bigint is the i-th value; NULL is nil.
func (r *Row) Bigint(name string, i int) *int64 {
	if r.Cells[i].Null {
		return nil
	}
	n, err := strconv.ParseInt(r.Cells[i].Text, 10, 64)
	r.setError(name, err)
	return &n
}

// Text is the i-th value; NULL is empty.
func (r *Row) Text(i int) string { return r.Cells[i].Text }

// Bool is the i-th value; NULL is false.
func (r *Row) Bool(i int) bool { return r.Cells[i].Text == "t" }

// NamesSQL is the SQL of an array with these names.
func NamesSQL(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = QuoteLiteral(name)
	}
	return "ARRAY[" + strings.Join(quoted, ", ") + "]::name[]"
}

// QuoteLiteral makes text a string constant of SQL, with standard_conforming_strings on.
func QuoteLiteral(text string) string {
	return `'` + strings.ReplaceAll(text, `'`, `''`) + `'`
}
