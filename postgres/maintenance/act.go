package maintenance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// briefLockTimeout has a statement fail soon at a row that somebody else has locked: others may wait for the rows
// that it has locked itself by then. It goes in one message with the statement, which makes them one transaction.
const briefLockTimeout = "SET LOCAL lock_timeout = '50ms'; "

// lockedFor is how long rows are taken for locked by others once one was.
const lockedFor = 10 * time.Second

// Act implements proof.Session. All of it is one transaction: on an error nothing was done,
// unless the connection was lost, when nobody knows. Unless the work waits for locks, rows are
// locked beforehand to be archived, and for a while after somebody else was found to have one locked: a
// row costs the server a third more then.
func (s *Session) Act(ctx context.Context, rows []proof.Row) (int, error) {
	s.q.Ctx = ctx
	if s.work.Archive != nil {
		return s.archive(s.proven(rows))
	}
	brief := !s.work.Waits && time.Since(s.locked) > lockedFor
	if brief {
		acted, err := s.act(ctx, rows, briefLockTimeout, s.versions(rows))
		if postgres.Reason(err) != fault.ReasonLockTimeout {
			return acted, err
		}
	}
	with, where := s.proven(rows)
	if with != "" {
		with = "WITH " + with + "\n"
	}
	acted, err := s.act(ctx, rows, with, where)
	// A lock that is no row's may have been waited for, as the one that a writer takes to make the table larger.
	if brief && err == nil && acted < len(rows) {
		s.locked = time.Now()
	}
	return acted, err
}

// act deletes or updates. before is what comes before the statement.
func (s *Session) act(ctx context.Context, rows []proof.Row, before, where string) (int, error) {
	table := s.work.Table.SQL()
	act, returning := "DELETE FROM ONLY "+table, ""
	if s.work.Set != "" {
		act = "UPDATE ONLY " + table + " SET " + s.work.Set
	}
	if s.work.IsSet != "" {
		returning = " RETURNING " + s.id()
	}
	results, err := s.q.Conn.Exec(ctx, before+act+" WHERE "+where+returning).ReadAll()
	if err != nil {
		return 0, s.actError(err)
	}
	done := results[len(results)-1]
	if returning != "" {
		s.rememberMissed(rows, done.Rows)
	}
	return int(done.CommandTag.RowsAffected()), nil
}

func (s *Session) actError(err error) error {
	return postgres.PermissionHint(postgres.FunctionHint(postgres.Classify("act on rows of "+s.subject(), err), hintFunction),
		"grant DELETE on the table, or UPDATE on the columns that are set, and UPDATE on one column to skip locked rows")
}

// hintFunction is for what a trigger's function did not find.
const hintFunction = "a trigger's function, or another one that the statement runs, needs it, and the session's search_path is pg_catalog alone: name it with its schema in the function, or give the function a search_path of its own (ALTER FUNCTION … SET search_path)"

// proven is the condition for those of the versions that still exist and still are to go, and
// the query that it refers to, if any. That query locks them first, and leaves rows out that
// somebody else has locked. Without it the statement waits for them, and looks at xmin again: a
// version that was updated meanwhile is another.
func (s *Session) proven(rows []proof.Row) (with, where string) {
	versions := s.versions(rows)
	if s.work.Waits {
		return "", versions
	}
	return fmt.Sprintf("proven AS MATERIALIZED (SELECT ctid FROM ONLY %s WHERE %s FOR UPDATE SKIP LOCKED)", s.work.Table.SQL(), versions),
		"ctid = ANY (ARRAY(SELECT ctid FROM proven))"
}

// versions is the condition for those of the versions that still exist and meet the work's own, in
// the session and the file in which they were named, all of them in one. The lock of a statement
// keeps the file until it has ended.
func (s *Session) versions(rows []proof.Row) string {
	file, tids, xmins := uint32(0), make([]string, 0, len(rows)), make([]string, 0, 1)
	for i, r := range rows {
		if i == 0 {
			file = r.File
		}
		if r.File != file {
			continue
		}
		tids = append(tids, `"`+r.TID.String()+`"`)
		if i == 0 || r.XMin != rows[i-1].XMin { // rows of a transaction often follow each other
			xmins = append(xmins, strconv.FormatUint(uint64(r.XMin), 10))
		}
	}
	columns := ""
	if s.work.Columns != nil {
		columns = fmt.Sprintf(" AND ARRAY(SELECT attname::text || ' ' || pg_catalog.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute WHERE attrelid = %d AND attnum > 0 AND NOT attisdropped ORDER BY attnum) = %s", s.oid, columnsSQL(s.work.Columns))
	}
	// In a query of its own, session and file are asked for once, and not for each row.
	return fmt.Sprintf("ctid = ANY ('{%s}'::tid[]) AND xmin = ANY ('{%s}'::xid[]) AND (SELECT pg_catalog.pg_backend_pid() = %d AND %s = %d)%s%s AND %s",
		strings.Join(tids, ","), strings.Join(xmins, ","), s.pid, s.file(), file, columns, s.below(), s.condition())
}

// below is the condition that the table is a partition of Work.Root. The lock of a statement keeps it one
// until the statement has ended. A publication of all tables has a partition also once it is detached,
// and what is written to it from then on is sent by nobody.
func (s *Session) below() string {
	if s.work.Root == 0 || s.work.Root == s.oid {
		return ""
	}
	return fmt.Sprintf(` AND EXISTS (WITH RECURSIVE above(relid) AS (SELECT %d::oid
			UNION ALL SELECT i.inhparent FROM pg_catalog.pg_inherits i JOIN above a ON i.inhrelid = a.relid WHERE NOT i.inhdetachpending)
		SELECT FROM above WHERE relid = %d)`, s.oid, s.work.Root)
}

func columnsSQL(columns []Column) string {
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = postgres.QuoteLiteral(c.Name + " " + c.Type)
	}
	return "ARRAY[" + strings.Join(quoted, ", ") + "]::text[]"
}

var errArchiveLacks = errors.New("the archive did not take every row: a trigger or a rule keeps some out")

// archive moves rows. What the archive does not take stays.
func (s *Session) archive(with, where string) (moved int, err error) {
	if err := s.q.Exec("BEGIN"); err != nil {
		return 0, s.archiveError(err)
	}
	gone, taken, err := s.move(with, where)
	switch {
	case err != nil:
		err = s.archiveError(err)
	case gone != taken:
		err = &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: "archive rows of", Subject: s.subject(), Err: errArchiveLacks, Hint: "look at the triggers and rules of " + s.work.Archive.Table.String()}
	default:
		return gone, s.archiveError(s.q.Exec("COMMIT"))
	}
	_ = s.q.Exec("ROLLBACK") // a lost connection rolls back too
	return 0, err
}

func (s *Session) move(with, where string) (gone, taken int, err error) {
	quoted := make([]string, len(s.work.Archive.Columns))
	for i, column := range s.work.Archive.Columns {
		quoted[i] = wal.QuoteIdentifier(column)
	}
	if with != "" {
		with += ",\n"
	}
	columns := strings.Join(quoted, ", ")
	row, err := s.q.One(fmt.Sprintf(`WITH %sgone AS (DELETE FROM ONLY %s WHERE %s RETURNING %s),
		taken AS (INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM gone RETURNING 1)
		SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM taken)`,
		with, s.work.Table.SQL(), where, columns, s.work.Archive.Table.SQL(), columns, columns))
	if err != nil {
		return 0, 0, err
	}
	gone, taken = row.Int("rows deleted", 0), row.Int("rows archived", 1)
	return gone, taken, row.Err
}

func (s *Session) archiveError(err error) error {
	return postgres.PermissionHint(postgres.FunctionHint(postgres.Classify("archive rows of "+s.subject(), err), hintFunction),
		"grant DELETE on the table, UPDATE on one of its columns to skip locked rows, and INSERT on the archive table")
}
