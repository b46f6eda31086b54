package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// LockClass is the first of the two numbers of the advisory lock: "cdcm" in ASCII. The second
// is the table's OID.
const LockClass = 0x6364636d

// MarkLockClass is that of work which sets a mark: "cdck". It goes on while rows are deleted; a
// version that one of the two changed is another one for the other.
const MarkLockClass = 0x6364636b

const applicationName = "cdc-relay maintenance"

// Work says which rows, and what is done to them. The SQL in it is the operator's own.
type Work struct {
	Table wal.Table // the one that has the rows itself: no root of partitions
	Root  uint32    // OID of the table that it has to be a partition of, at whatever level; zero, or its own: of none
	ID    string    // SQL expression of the event id; empty: the rows have none
	Where string    // SQL condition
	Order string    // SQL expression with an index, by which rows are named; empty: by their places
	Set   string    // SQL assignments of an UPDATE; empty: the rows are deleted
	IsSet string    // SQL condition of a row that has them, for Missed and Marked; empty: nobody asks
	Limit int       // rows of a batch
	Tied  int       // rows of a batch of which all have one value of Order, at most; less than Limit: Limit
	Lock  int32     // class of the advisory lock; zero: LockClass

	// Columns are all of the table's, in order, where their values go elsewhere: nothing is read or
	// done once the table has others, or one has another type. nil: it may have any.
	Columns []Column

	// Archive gets the rows that are deleted, in the same transaction: these columns.
	Archive *Archive

	// Waits has a row that somebody else has locked be waited for, as long as lock_timeout. It
	// needs no right to lock rows; without it such rows are left out.
	Waits bool
}

// Archive is a table that gets rows which are deleted from another.
type Archive struct {
	Table   wal.Table
	Columns []string
}

// Session is one connection; *Session satisfies proof.Session.
type Session struct {
	q       postgres.Querier
	work    Work
	pid     int
	oid     uint32
	version int
	lineage wal.Lineage
	last    cursor // the last row that was named
	ended   bool   // that row was the last one
	tied    int    // rows of the last batch, if the row before it and all of its rows have one value
	blocks  uint32 // the table's, when the naming began
	missed  []string
	locked  time.Time // when a row was found locked by somebody else
}

// cursor is where the naming of rows continues.
type cursor struct {
	tid   proof.TID
	order string // value of Work.Order, as the server prints it
	nulls bool   // it has none: rows without a value are in the order of their places
	began bool
}

// Open connects and takes the table's lock. While somebody else has it the error is of KindBusy.
func Open(ctx context.Context, cfg postgres.Config, work Work) (*Session, error) {
	return open(ctx, cfg, work, "r")
}

// open connects to a table of that relkind.
func open(ctx context.Context, cfg postgres.Config, work Work, kind string) (*Session, error) {
	if work.Limit < 1 {
		return nil, &fault.Error{Reason: fault.ReasonConfiguration, Op: "prove rows delivered", Err: fmt.Errorf("a batch of %d rows; allowed: 1 and more", work.Limit)}
	}
	cfg.ApplicationName = applicationName
	q, server, err := postgres.OpenSession(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	s := &Session{q: q, work: work, version: server.ServerVersion}
	err = server.CheckDecoding(q) // the primary
	if err == nil {
		err = s.prepare(kind)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the connection, and with it the lock.
func (s *Session) Close() { postgres.EndSession(s.q.Conn) }

// settings keep a statement of ours from waiting, from being cut short by a policy without a
// word, and from judging by an old snapshot.
const settings = `SET row_security = off; SET lock_timeout = '2s'; SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '60s';
	SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off; SET synchronous_commit = off`

func (s *Session) prepare(kind string) error {
	if err := s.q.Exec(settings); err != nil {
		return postgres.Classify("prepare the session for "+s.subject(), err)
	}
	if err := s.identify(); err != nil {
		return err
	}
	if err := s.find(kind); err != nil {
		return err
	}
	return s.lock()
}

func (s *Session) subject() string { return "table " + s.work.Table.String() }

// identify reads which server this is.
func (s *Session) identify() error {
	row, err := s.q.One(`SELECT pg_catalog.pg_backend_pid(), (SELECT system_identifier FROM pg_catalog.pg_control_system()),
		pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)`)
	if err != nil {
		return postgres.Classify("identify the server", err)
	}
	timeline, err := strconv.ParseInt(row.Text(2), 16, 32)
	if err != nil {
		return &fault.Error{Kind: fault.KindProtocol, Op: "identify the server", Err: fmt.Errorf("read its timeline: %w", err)}
	}
	s.pid, s.lineage = row.Int("pg_backend_pid", 0), wal.Lineage{SystemID: row.Text(1), Timeline: int32(timeline)}
	return row.Err
}

// find reads which table it is.
func (s *Session) find(kind string) error {
	row, err := s.q.One(fmt.Sprintf(`SELECT c.oid, c.relkind, c.relpersistence FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = %s AND c.relname = %s`, postgres.QuoteLiteral(s.work.Table.Schema), postgres.QuoteLiteral(s.work.Table.Name)))
	if errors.Is(err, postgres.ErrNoRow) {
		return s.refuse(fault.ReasonTableMissing, "it does not exist")
	}
	if err != nil {
		return postgres.Classify("look at "+s.subject(), err)
	}
	oid, err := strconv.ParseUint(row.Text(0), 10, 32)
	switch {
	case err != nil:
		return &fault.Error{Kind: fault.KindProtocol, Op: "look at", Subject: s.subject(), Err: err}
	case row.Text(1) != kind && kind == "p":
		return s.refuse(fault.ReasonConfiguration, "it has no partitions")
	case row.Text(1) != kind:
		return s.refuse(fault.ReasonConfiguration, "it holds no rows itself: a view, or the root of partitions")
	case row.Text(2) != "p":
		return s.refuse(fault.ReasonConfiguration, "it is unlogged or temporary, and no slot has its rows")
	}
	s.oid = uint32(oid)
	return nil
}

func (s *Session) refuse(reason, cause string) error {
	return &fault.Error{Kind: fault.KindRefused, Reason: reason, Op: "prove rows delivered", Subject: s.subject(), Err: errors.New(cause)}
}

// lock takes the table's lock, or names who has it as far as our rights show.
func (s *Session) lock() error {
	row, err := s.q.One(fmt.Sprintf(`SELECT pg_catalog.pg_try_advisory_lock(%d, %d)`, cmp.Or(s.work.Lock, LockClass), int32(s.oid)))
	if err != nil {
		return postgres.Classify("lock "+s.subject(), err)
	}
	if row.Bool(0) {
		return nil
	}
	owner := "another one"
	row, err = s.q.One(fmt.Sprintf(`SELECT l.pid, coalesce(a.application_name, ''), coalesce(pg_catalog.host(a.client_addr), '')
		FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = %d AND l.objid = '%d'::oid
			AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())`, cmp.Or(s.work.Lock, LockClass), s.oid))
	if err == nil {
		owner = "pid " + row.Text(0)
		for i, label := range []string{"application_name", "client_addr"} {
			if row.Text(i+1) != "" {
				owner += fmt.Sprintf(", %s %s", label, row.Text(i+1))
			}
		}
	}
	return &fault.Error{Kind: fault.KindBusy, Reason: fault.ReasonMaintenanceInUse, Op: "lock", Subject: s.subject(), Err: fmt.Errorf("another session holds the lock: %s", owner), Hint: "a relay that runs does this work itself (maintenance.in_run), and needs no --once beside it; otherwise wait until the other process has ended"}
}

// OID is the table's.
func (s *Session) OID() uint32 { return s.oid }

// Lineage implements proof.Session.
func (s *Session) Lineage() wal.Lineage { return s.lineage }

var errPooled = errors.New("the server ran a statement in another session than the first: a pooler is in between")

// checkProcess refuses a statement that did not run in the session that was opened.
func (s *Session) checkProcess(pid int) error {
	if pid == s.pid {
		return nil
	}
	return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: "prove rows delivered", Subject: s.subject(), Err: errPooled, Hint: "connect to the server itself (maintenance.url)"}
}

// condition is what a row has to meet whenever it is looked at. A table that took the name of
// the one that was opened has another OID.
func (s *Session) condition() string {
	condition := fmt.Sprintf("tableoid = '%d'::oid", s.oid)
	if s.work.Where != "" {
		condition += " AND (" + s.work.Where + "\n)" // a comment at the end takes no parenthesis
	}
	return condition
}

// readOnly runs a query whose SQL the operator wrote. begin are further statements before it.
func (s *Session) readOnly(begin, sql string) (rows [][][]byte, err error) {
	results, err := s.q.Together("BEGIN READ ONLY" + begin + "; " + sql + "; COMMIT")
	if err != nil {
		return nil, err
	}
	return results[len(results)-2].Rows, nil
}

// Fence is the end of the WAL, as Name has it.
func (s *Session) Fence(ctx context.Context) (wal.LSN, error) {
	s.q.Ctx = ctx
	return postgres.WALInserted(s.q)
}

// Slots implements proof.Session.
func (s *Session) Slots(ctx context.Context, names []string) ([]proof.Slot, error) {
	s.q.Ctx = ctx
	lost := `CASE WHEN s.wal_status = 'lost' THEN 'wal_status is lost' END`
	if s.version >= postgres.FailoverVersion {
		lost = `coalesce(s.invalidation_reason, ` + lost + `)`
	}
	rows, err := s.q.All(fmt.Sprintf(`SELECT pg_catalog.pg_backend_pid(), s.slot_name, coalesce(s.confirmed_flush_lsn, '0/0'), s.active, coalesce(%s, '')
		FROM (SELECT) one LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = ANY (%s) AND s.slot_type = 'logical'
			AND s.database = current_database()`, lost, postgres.NamesSQL(names)))
	if err != nil {
		return nil, postgres.Classify("look at the slots", err)
	}
	var slots []proof.Slot
	for _, cells := range rows {
		row := postgres.Row{Cells: cells}
		if err := s.checkProcess(row.Int("pg_backend_pid", 0)); err != nil {
			return nil, err
		}
		if cells[1].Null {
			continue
		}
		slots = append(slots, proof.Slot{Name: row.Text(1), Confirmed: row.LSN("confirmed_flush_lsn", 2), Active: row.Bool(3), Lost: row.Text(4)})
		if row.Err != nil {
			return nil, row.Err
		}
	}
	return slots, nil
}

// Nudge implements proof.Session.
func (s *Session) Nudge(ctx context.Context) error {
	s.q.Ctx = ctx
	return postgres.Classify("move the end of the WAL", s.q.Exec(`SELECT pg_catalog.pg_current_xact_id() WHERE NOT pg_catalog.pg_is_in_recovery()`))
}
