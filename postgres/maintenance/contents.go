package maintenance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
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
	named := make(map[string]proof.Row, len(rows))
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
			if n := len(all); n == 0 || all[n-1].Begin != begin {
				all = append(all, Slice{Begin: begin})
			}
			last := &all[len(all)-1]
			last.Rows = append(last.Rows, named[c[0].Text])
		}
	}
	return all, nil
}

var errChanged = errors.New("a row was changed between two looks at it")

// Contents reads rows, each column in its text form; nil is NULL. All of them have to be there
// still: the error otherwise is one to try again after.
func (s *Session) Contents(ctx context.Context, rows []proof.Row, columns []string, each func(values []*string) error) error {
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = wal.QuoteIdentifier(c) + "::text"
	}
	for rest := rows; len(rest) > 0; {
		some := rest[:min(readTogether, len(rest))]
		rest = rest[len(some):]
		n, err := s.stream(ctx, fmt.Sprintf("SELECT %s FROM ONLY %s WHERE %s ORDER BY ctid", strings.Join(quoted, ", "), s.work.Table.SQL(), s.versions(some)), each)
		if err != nil {
			return err
		}
		if n != len(some) {
			return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonExportFailed, Op: "read rows of", Subject: s.subject(), Err: errChanged, Hint: "it is tried again"}
		}
	}
	return nil
}

// stream gives one row after the other away, without keeping any.
func (s *Session) stream(ctx context.Context, sql string, each func(values []*string) error) (n int, err error) {
	results := s.q.Conn.Exec(ctx, sql)
	var failed error
	for results.NextResult() {
		reader := results.ResultReader()
		for failed == nil && reader.NextRow() {
			n++
			failed = each(texts(reader.Values()))
		}
		_, _ = reader.Close() // Close of all results has the error
	}
	if err := results.Close(); err != nil {
		return n, postgres.Classify("read rows of "+s.subject(), err)
	}
	return n, failed
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
