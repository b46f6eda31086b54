package maintenance

import (
	"context"
	"fmt"
	"strconv"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Name implements proof.Session. It goes through the table in the order of the work, so that
// rows that are held are not all that it finds. It returns no rows once, at the end of the
// table, and then begins again. Where the table ends is where it did as the naming began, or
// after a batch that is not full: rows that are written all the time do not keep it from
// beginning again.
func (s *Session) Name(ctx context.Context) (named []proof.Row, fence wal.LSN, err error) {
	s.q.Ctx = ctx
	if s.ended {
		s.last, s.ended = cursor{}, false
		return nil, 0, nil
	}
	if named, fence, err = s.next(); err != nil {
		return nil, 0, postgres.Classify("name rows of "+s.subject(), err)
	}
	if len(named) == 0 {
		s.last = cursor{}
	}
	return named, fence, nil
}

func (s *Session) next() ([]proof.Row, wal.LSN, error) {
	if s.work.Order != "" {
		return s.nextByIndex()
	}
	return s.nextByPlace()
}

// withIndex keeps the server from sorting the whole table for each batch, and from starting workers
// that read ahead of what the batch takes.
const withIndex = "; SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_tidscan = off; SET LOCAL enable_sort = off"

func (s *Session) nextByIndex() ([]proof.Row, wal.LSN, error) {
	for {
		first, nulls := !s.last.began, s.last.nulls
		before, limit := s.last.order, s.page()
		named, fence, err := s.read(withIndex, s.byIndex(limit))
		if err != nil {
			return nil, 0, err
		}
		if s.tied = 0; !first && !nulls && len(named) > 0 && s.last.order == before { // to name rows of one value reads all of them
			s.tied = limit
		}
		switch {
		case len(named) == limit:
		case first, nulls:
			s.ended = len(named) > 0
		default: // rows without a value follow
			s.last = cursor{began: true, nulls: true}
			if len(named) == 0 {
				continue
			}
		}
		return named, fence, nil
	}
}

// page is how many rows the next batch has at most: twice as many as before while all have one value.
func (s *Session) page() int {
	return max(s.work.Limit, min(2*s.tied, s.work.Tied))
}

// byIndex names the rows after the last one by the index of Work.Order. Rows of one value are
// in the order of their places, and rows without a value are the last ones.
func (s *Session) byIndex(limit int) string {
	order, after := s.work.Order, ""
	switch {
	case s.last.nulls:
		after = fmt.Sprintf("%s IS NULL AND ctid > '%s'::tid AND ", order, s.last.tid)
	case s.last.began:
		value := postgres.QuoteLiteral(s.last.order)
		after = fmt.Sprintf("%s >= %s AND (%s > %s OR ctid > '%s'::tid) AND ", order, value, order, value, s.last.tid)
	}
	// Without the alias ORDER BY would mean the text, which has the column's name.
	return fmt.Sprintf("SELECT ctid, xmin, %s, (%s)::text AS \"?text?\" FROM ONLY %s WHERE %s%s ORDER BY %s, ctid LIMIT %d",
		s.id(), order, s.work.Table.SQL(), after, s.condition(), order, limit)
}

// windowRows is how many rows a block is taken to hold, at least: a server knows no order of
// places, and sorts what a statement selects.
const windowRows = 8

// nextByPlace goes on by windows of blocks, so that a batch costs its window and not the table.
func (s *Session) nextByPlace() ([]proof.Row, wal.LSN, error) {
	window := uint32(max(1, s.work.Limit/windowRows))
	if s.last == (cursor{}) {
		blocks, err := s.size()
		if err != nil {
			return nil, 0, err
		}
		s.blocks = blocks
	}
	for {
		if s.last.tid.Block >= s.blocks {
			return nil, 0, nil
		}
		end := s.last.tid.Block + window
		named, fence, err := s.read("", fmt.Sprintf("SELECT ctid, xmin, %s, NULL FROM ONLY %s WHERE ctid > '%s'::tid AND ctid < '(%d,0)'::tid AND %s ORDER BY ctid LIMIT %d",
			s.id(), s.work.Table.SQL(), s.last.tid, end, s.condition(), s.work.Limit))
		if err != nil || len(named) > 0 {
			return named, fence, err
		}
		s.last = cursor{tid: proof.TID{Block: end}}
	}
}

// size is how many blocks the table has.
func (s *Session) size() (uint32, error) {
	row, err := s.q.One(fmt.Sprintf("SELECT pg_catalog.pg_relation_size('%d'::oid::regclass) / current_setting('block_size')::bigint", s.oid))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(row.Text(0), 10, 32)
	return uint32(n), err
}

// file is the SQL of the number of the table's file. VACUUM FULL, CLUSTER and whatever else writes
// the table anew gives it another one.
func (s *Session) file() string { return fmt.Sprintf("pg_catalog.pg_relation_filenode(%d)", s.oid) }

func (s *Session) id() string {
	if s.work.ID == "" {
		return "NULL"
	}
	return "(" + s.work.ID + ")::text"
}

// read runs a query for place, xmin, id and order of rows, and remembers the last one. The table's
// file is looked up first: rows of a file that takes its place meanwhile are not acted on. The end of
// the WAL is read last, after the transaction.
func (s *Session) read(begin, sql string) (named []proof.Row, fence wal.LSN, err error) {
	results, err := s.q.Together("BEGIN READ ONLY" + begin + "; SELECT " + s.file() + "; " + sql + "; COMMIT; " + postgres.WALInsertedSQL)
	if err != nil {
		return nil, 0, err
	}
	last := results[len(results)-4:] // file, rows, COMMIT, end of the WAL
	end := postgres.Row{Cells: postgres.CellsOf(last[3])[0]}
	if fence, err = end.WALInserted(); err == nil {
		named, err = s.rows(last[0].Rows[0][0], last[1].Rows)
	}
	return named, fence, err
}

func (s *Session) rows(number []byte, rows [][][]byte) ([]proof.Row, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	malformed := func(err error) error {
		return &fault.Error{Kind: fault.KindProtocol, Op: "name rows of", Subject: s.subject(), Err: err}
	}
	file, err := strconv.ParseUint(string(number), 10, 32)
	if err != nil {
		return nil, malformed(err)
	}
	named := make([]proof.Row, 0, len(rows))
	for _, row := range rows {
		tid, err := proof.ParseTID(string(row[0]))
		if err != nil {
			return nil, malformed(err)
		}
		xmin, err := strconv.ParseUint(string(row[1]), 10, 32)
		if err != nil {
			return nil, malformed(err)
		}
		named = append(named, proof.Row{TID: tid, XMin: uint32(xmin), File: uint32(file), ID: string(row[2]), NoID: row[2] == nil})
	}
	if n := len(named); n > 0 {
		order := rows[n-1][3]
		s.last = cursor{tid: named[n-1].TID, order: string(order), began: true, nulls: order == nil && s.work.Order != ""}
	}
	return named, nil
}
