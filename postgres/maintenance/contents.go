package maintenance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Slice is rows that belong together.
type Slice struct {
	Begin int64
	Rows  []proof.Row
}

// readTogether is how many rows one statement reads.
const readTogether = 1000

// Slices sorts rows by a whole number, of which slice is the SQL. Rows that somebody changed
// meanwhile are left out.
func (s *Session) Slices(ctx context.Context, rows []proof.Row, slice string) (all []Slice, err error) {
	s.q.Ctx = ctx
	named, at := make(map[string]proof.Row, len(rows)), make(map[int64]int)
	for _, r := range rows {
		named[r.TID.String()] = r
	}
	for rest := rows; len(rest) > 0; {
		some := rest[:min(readTogether, len(rest))]
		rest = rest[len(some):]
		cells, err := s.q.All(fmt.Sprintf("SELECT ctid, %s AS slice FROM ONLY %s WHERE %s ORDER BY slice, ctid", slice, s.work.Table.SQL(), s.versions(some)))
		if err != nil {
			return nil, postgres.Classify("look at the rows of "+s.subject(), err)
		}
		for _, c := range cells {
			begin, err := strconv.ParseInt(c[1].Text, 10, 64)
			if err != nil {
				return nil, err
			}
			i, began := at[begin]
			if !began {
				i = len(all)
				at[begin], all = i, append(all, Slice{Begin: begin})
			}
			all[i].Rows = append(all[i].Rows, named[c[0].Text])
		}
	}
	slices.SortFunc(all, func(a, b Slice) int { return cmp.Compare(a.Begin, b.Begin) })
	return all, nil
}

// Contents reads rows, each column in the output form of its type; nil is NULL. A cast to text is not the same:
// it removes trailing blanks, and a database may define its own. Contents returns the rows that it gave to
// each: it leaves out rows that somebody changed meanwhile.
func (s *Session) Contents(ctx context.Context, rows []proof.Row, columns []Column, each func(values []*string) error) (read []proof.Row, err error) {
	quoted, named := make([]string, len(columns)), make(map[string]proof.Row, len(rows))
	for i, c := range columns {
		quoted[i] = wal.QuoteIdentifier(c.Name)
		if c.Type == "boolean" { // true and false instead of t and f
			quoted[i] += "::text"
		}
	}
	for _, r := range rows {
		named[r.TID.String()] = r
	}
	for rest := rows; len(rest) > 0; {
		some := rest[:min(readTogether, len(rest))]
		rest = rest[len(some):]
		err := s.stream(ctx, fmt.Sprintf("SELECT ctid, %s FROM ONLY %s WHERE %s ORDER BY ctid", strings.Join(quoted, ", "), s.work.Table.SQL(), s.versions(some)), func(values []*string) error {
			read = append(read, named[*values[0]])
			return each(values[1:])
		})
		if err != nil {
			return nil, err
		}
	}
	return read, nil
}

// patient is how long the server may take to send what a statement selects: it waits for whoever
// takes the rows, who may be sending others on.
const patient = "10min"

// stream gives one row after the other away, without keeping any.
func (s *Session) stream(ctx context.Context, sql string, each func(values []*string) error) error {
	results := s.q.Conn.Exec(ctx, "BEGIN READ ONLY; SET LOCAL statement_timeout = '"+patient+"'; "+sql+"; COMMIT")
	var failed error
	for results.NextResult() {
		reader := results.ResultReader()
		for failed == nil && reader.NextRow() {
			failed = each(texts(reader.Values()))
		}
		_, _ = reader.Close() // Close of all results has the error
	}
	if err := results.Close(); err != nil {
		_ = s.q.Exec("ROLLBACK") // a lost connection rolls back too
		return postgres.Classify("read rows of "+s.subject(), err)
	}
	return failed
}

func texts(cells [][]byte) []*string {
	values := make([]*string, len(cells))
	for i, c := range cells {
		if c != nil {
			text := string(c)
			values[i] = &text
		}
	}
	return values
}
