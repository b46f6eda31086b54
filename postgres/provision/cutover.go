package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// CutTable is a table whose new rows are marked.
type CutTable struct {
	Table wal.Table
	OID   uint32
	Set   []string // statements of the trigger, such as NEW.published_at := now()
}

// refuseAfterCut refuses a slot that begins now where the trigger of a cutover has marked rows before: no
// publisher sends these, and the slot would not have them.
func (s *setup) refuseAfterCut(name string) error {
	if s.opt.AcceptCut {
		return nil
	}
	for _, table := range s.cfg.Tables {
		t, err := catalog.ReadTable(s.q, table)
		if err != nil {
			return err
		}
		if t == nil { // it is still to be made
			continue
		}
		cut, err := catalog.ReadCut(s.q, table, t.OID)
		if err != nil {
			return err
		}
		if cut != nil && !cut.Off {
			return &fault.Error{
				Kind: fault.KindRefused, Reason: fault.ReasonCutoverTrigger, Op: "create", Subject: postgres.SlotSubject(name),
				Err:  fmt.Errorf("a cutover has rows of table %s marked as published since %s (%s), and they would not be in the slot: nobody would send those that no earlier slot has sent", table, cut.At, cut.Time.UTC().Format("2006-01-02 15:04:05 UTC")),
				Hint: "to send them, run " + cut.Backfill() + ", which makes the slot; if they are sent, use --accept-gap, or, once no polling publisher is left, have the owner drop the trigger: " + UncutSQL(table, t.OID),
			}
		}
	}
	return nil
}

// hintCutGrants is the next step of a role that may not make a trigger.
const hintCutGrants = "`cdc-relay sql --for cutover` prints the grants"

// CheckCut refuses tables whose trigger the role of q could not make. It touches nothing.
func CheckCut(q postgres.Querier, tables []CutTable) error {
	for _, t := range tables {
		row, err := q.One(fmt.Sprintf(`SELECT pg_catalog.pg_has_role(relowner, 'MEMBER'), pg_catalog.has_schema_privilege(relowner, relnamespace, 'CREATE'), pg_catalog.pg_get_userbyid(relowner), current_user
			FROM pg_catalog.pg_class WHERE oid = %d`, t.OID))
		if err != nil {
			return postgres.Classify("look at the owner of table "+t.Table.String(), err)
		}
		var missing error
		switch owner := row.Text(2); {
		case !row.Bool(0):
			missing = fmt.Errorf("the trigger is made as the table's owner, and role %s is not a member of %s", row.Text(3), owner)
		case !row.Bool(1):
			missing = fmt.Errorf("the trigger's function is made in the table's schema, and the owner %s has no CREATE on schema %s", owner, t.Table.Schema)
		default:
			continue
		}
		return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonPermission, Op: "make the trigger of", Subject: "table " + t.Table.String(), Err: missing, Hint: hintCutGrants}
	}
	return nil
}

// cutLockTimeout bounds how long the lock of a cut is waited for, because writers wait behind it.
const cutLockTimeout = 2 * time.Second

// Locked is a transaction that keeps writers out of tables: while it is open, wait for nothing that lasts.
type Locked struct {
	q       postgres.Querier
	version int // of the server
	tables  []CutTable

	publications []string
}

// LockTables begins one, as the owner of each table. A lock that is not had in time is an error
// with ReasonLockTimeout.
func LockTables(ctx context.Context, cfg postgres.Config, tables []CutTable) (*Locked, error) {
	q, server, err := postgres.OpenServer(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	l := &Locked{q: q, version: server.ServerVersion, tables: slices.SortedFunc(slices.Values(tables), func(a, b CutTable) int { return int(a.OID) - int(b.OID) })}
	for _, shard := range cfg.Shards() {
		l.publications = append(l.publications, shard.Publication)
	}
	if err = server.CheckDecoding(q); err == nil {
		err = l.lock()
	}
	if err != nil {
		l.Close()
		return nil, postgres.PermissionHint(err, "run it as a role that owns the table, or is a member of the one that does: "+hintCutGrants)
	}
	return l, nil
}

// lock waits for every transaction that wrote to the tables, prepared ones too.
func (l *Locked) lock() error {
	// The commit of a cut has to be on disk: the slot is moved to a position before it.
	err := l.q.Exec(fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = 60000; SET LOCAL synchronous_commit = local", cutLockTimeout.Milliseconds()))
	if err != nil {
		return postgres.Classify("begin the cut", err)
	}
	for _, t := range l.tables {
		row, err := l.q.One(fmt.Sprintf(`SELECT %s::regclass = '%d'::oid, pg_catalog.pg_get_userbyid(relowner) FROM pg_catalog.pg_class WHERE oid = %d`, postgres.QuoteLiteral(t.Table.SQL()), t.OID, t.OID))
		if err != nil {
			return postgres.Classify("look at table "+t.Table.String(), err)
		}
		if !row.Bool(0) {
			return catalog.CutError(t.Table, errors.New("somebody replaced it"), "run the command again")
		}
		if err := l.q.Exec("RESET ROLE; SET LOCAL ROLE " + wal.QuoteIdentifier(row.Text(1)) + "; LOCK TABLE " + t.Table.SQL() + " IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return postgres.Classify("lock table "+t.Table.String(), err)
		}
	}
	return nil
}

// Close ends the transaction without what it did, unless it is committed.
func (l *Locked) Close() { postgres.CloseQuietly(l.q.Conn) }

// End is the end of the WAL. What was committed to the tables is before it.
func (l *Locked) End() (wal.LSN, error) { return postgres.WALInserted(l.q) }

// Cut makes the triggers, and commits. When it returns an error nobody knows whether it did. The
// position is read after the triggers are made: that writes WAL, so that the cut lies behind the
// beginning of a slot that was made before, also where nobody else writes.
func (l *Locked) Cut(system, slot string) (wal.LSN, error) {
	for _, t := range l.tables {
		if err := l.asOwner(t, triggerSQL(t)); err != nil {
			return 0, err
		}
	}
	at, err := l.End()
	if err != nil {
		return 0, err
	}
	cut := &catalog.Cut{At: at, System: system, Slot: slot, Time: time.Now()}
	for _, t := range l.tables {
		published, err := catalog.PublishedAs(l.q, l.version, t.OID, l.publications)
		if err != nil {
			return 0, postgres.Classify("look at publications", err)
		}
		cut.As = catalog.Fingerprint(published)
		if err := l.asOwner(t, commentSQL(t, cut)); err != nil {
			return 0, err
		}
	}
	return at, postgres.Classify("commit the cut", l.q.Exec("COMMIT"))
}

// Disable has the triggers not fire any more, and commits. When it returns an error nobody knows
// whether it did. To drop them takes a lock that readers hold up.
func (l *Locked) Disable() error {
	for _, t := range l.tables {
		if err := l.asOwner(t, "ALTER TABLE "+t.Table.SQL()+" DISABLE TRIGGER "+postgres.CutoverTrigger); err != nil {
			return err
		}
	}
	return postgres.Classify("commit", l.q.Exec("COMMIT"))
}

// DropTriggers drops triggers and their functions, as the owner of each table.
func DropTriggers(ctx context.Context, cfg postgres.Config, tables []CutTable) error {
	q, _, err := postgres.OpenServer(ctx, cfg, false)
	if err != nil {
		return err
	}
	l := &Locked{q: q}
	defer l.Close()
	for _, t := range tables {
		if err := q.Exec(fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = %d", cutLockTimeout.Milliseconds())); err != nil {
			return postgres.Classify("drop the trigger of table "+t.Table.String(), err)
		}
		if err := l.asOwner(t, UncutSQL(t.Table, t.OID)+"; COMMIT"); err != nil {
			return err
		}
	}
	return nil
}

// asOwner runs statements as the owner of a table, who then owns what they make.
func (l *Locked) asOwner(t CutTable, sql string) error {
	row, err := l.q.One(fmt.Sprintf(`SELECT pg_catalog.pg_get_userbyid(relowner) FROM pg_catalog.pg_class WHERE oid = %d`, t.OID))
	if err == nil {
		err = l.q.Exec("RESET ROLE; SET LOCAL ROLE " + wal.QuoteIdentifier(row.Text(0)) + "; " + sql)
	}
	return postgres.PermissionHint(postgres.Classify("change the trigger of table "+t.Table.String(), err), "the owner of the table needs CREATE on its schema: "+hintCutGrants)
}

func cutFunction(t CutTable) string {
	return wal.QuoteIdentifier(t.Table.Schema) + "." + wal.QuoteIdentifier(fmt.Sprintf("%s_%d", postgres.CutoverTrigger, t.OID))
}

// triggerSQL has the trigger fire for inserts of an apply worker too.
func triggerSQL(t CutTable) string {
	table, function := t.Table.SQL(), cutFunction(t)
	return fmt.Sprintf(`CREATE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql AS %[2]s;
CREATE TRIGGER %[3]s BEFORE INSERT ON %[4]s FOR EACH ROW EXECUTE FUNCTION %[1]s();
ALTER TABLE %[4]s ENABLE ALWAYS TRIGGER %[3]s`,
		function, postgres.QuoteLiteral("BEGIN "+strings.Join(t.Set, "; ")+"; RETURN NEW; END"), postgres.CutoverTrigger, table)
}

func commentSQL(t CutTable, cut *catalog.Cut) string {
	return fmt.Sprintf("COMMENT ON TRIGGER %s ON %s IS %s", postgres.CutoverTrigger, t.Table.SQL(), postgres.QuoteLiteral(cut.String()))
}

// UncutSQL drops the trigger of a table, unless an interrupted call did.
func UncutSQL(table wal.Table, oid uint32) string {
	return fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s; DROP FUNCTION IF EXISTS %s()", postgres.CutoverTrigger, table.SQL(), cutFunction(CutTable{Table: table, OID: oid}))
}

// AdvanceSlot moves a slot that nobody streams from to a position, and fails if it ends elsewhere.
func AdvanceSlot(q postgres.Querier, name string, to wal.LSN) error {
	row, err := q.One(fmt.Sprintf("SELECT end_lsn FROM pg_catalog.pg_replication_slot_advance(%s, '%s')", postgres.QuoteLiteral(name), to))
	if err != nil {
		return postgres.PermissionHint(postgres.Classify("move "+postgres.SlotSubject(name), err), "run it as a role with REPLICATION")
	}
	if at := row.LSN("end_lsn", 0); row.Err == nil && at != to {
		return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonSlotUnusable, Op: "move", Subject: postgres.SlotSubject(name), LSN: at, Err: fmt.Errorf("it exists, but does not begin at %s", to)}
	}
	return row.Err
}
