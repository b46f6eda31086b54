package replication

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// querier runs SQL in the simple protocol, the only one that a walsender takes.
// That rules out parameters: every value in the text is a name from the
// configuration, through singleQuoted.
type querier struct {
	ctx  context.Context
	conn *pgconn.PgConn
}

type cell struct {
	text string
	null bool
}

type cells []cell

// catalogRow is one result row; the first value that does not parse is kept in err.
type catalogRow struct {
	cells cells
	err   error
}

var errNoRow = errors.New("no row")

// all returns the rows of the last statement in sql.
func (q querier) all(sql string) ([]cells, error) {
	results, err := q.conn.Exec(q.ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) == 0 {
		return nil, nil
	}
	rows := make([]cells, 0, len(results[len(results)-1].Rows))
	for _, values := range results[len(results)-1].Rows {
		row := make(cells, len(values))
		for i, value := range values {
			row[i] = cell{text: string(value), null: value == nil}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// one returns the first row, or errNoRow.
func (q querier) one(sql string) (*catalogRow, error) {
	rows, err := q.all(sql)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errNoRow
	}
	return &catalogRow{cells: rows[0]}, nil
}

func (q querier) exec(sql string) error {
	_, err := q.all(sql)
	return err
}

func (r *catalogRow) keep(name string, err error) {
	if err != nil && r.err == nil {
		r.err = &Error{Kind: KindProtocol, Op: "read " + name + " from the catalog", Err: err}
	}
}

func (r *catalogRow) int(name string, i int) int {
	n, err := strconv.Atoi(r.cells[i].text)
	r.keep(name, err)
	return n
}

func (r *catalogRow) lsn(name string, i int) pglogrepl.LSN {
	if r.cells[i].null {
		return 0
	}
	lsn, err := pglogrepl.ParseLSN(r.cells[i].text)
	r.keep(name, err)
	return lsn
}

func (r *catalogRow) bigint(name string, i int) *int64 {
	if r.cells[i].null {
		return nil
	}
	n, err := strconv.ParseInt(r.cells[i].text, 10, 64)
	r.keep(name, err)
	return &n
}

func (r *catalogRow) text(i int) string { return r.cells[i].text }

func (r *catalogRow) bool(i int) bool { return r.cells[i].text == "t" }

func singleQuoted(text string) string {
	return `'` + strings.ReplaceAll(text, `'`, `''`) + `'`
}
