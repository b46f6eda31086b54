package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/incomplete"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
)

const applicationName = "cdc-relay backfill"

// settings have a policy be an error instead of a silent filter, and nothing be written.
const settings = "SET row_security = off; SET default_transaction_read_only = on"

// Holder is the connection that has a snapshot. Any goroutine may call its methods.
type Holder struct {
	cfg     postgres.Config
	command string // of sql --for, where a right is missing
	version int
	origin  wal.Origin

	mu sync.Mutex
	q  postgres.Querier // guarded by mu
	id string           // what readers import; set by Begin

	tables []*Table // that keep their files; set by Begin and LockTables

	patience time.Duration // with a lock that another session holds
	quiet    time.Duration // how long Lock waits before it says so

	besideMu sync.Mutex
	beside   *Holder // guarded by besideMu; nil: AskBeside was not called
}

// OpenToRead connects to the primary for somebody who needs no slot, and so no right to
// replicate. Origin is then without the forks that led there.
func OpenToRead(ctx context.Context, cfg postgres.Config, command string) (*Holder, error) {
	cfg.ApplicationName = "cdc-relay " + command
	q, server, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	h := &Holder{cfg: cfg, command: command, version: server.ServerVersion, q: q, patience: lockPatience, quiet: lockQuiet}
	row, err := q.One(`SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()),
		pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)`)
	if err == nil {
		var timeline int64
		timeline, err = strconv.ParseInt(row.Text(1), 16, 32)
		h.origin = wal.Origin{SystemID: row.Text(0), Database: server.Database, Timeline: int32(timeline)}
	}
	if err != nil {
		h.Close()
		return nil, postgres.Classify("identify the server", err)
	}
	return h, nil
}

// Open connects to the primary. Nothing is held yet.
func Open(ctx context.Context, cfg postgres.Config) (*Holder, error) {
	cfg.ApplicationName = applicationName
	origin, err := identify(ctx, cfg)
	if err != nil {
		return nil, err
	}
	q, server, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Holder{cfg: cfg, command: "backfill", version: server.ServerVersion, origin: origin, q: q, patience: lockPatience, quiet: lockQuiet}, nil
}

// identify asks for the server's history, which takes a replication connection.
func identify(ctx context.Context, cfg postgres.Config) (wal.Origin, error) {
	q, server, err := postgres.OpenServer(ctx, cfg, true)
	if err != nil {
		return wal.Origin{}, err
	}
	defer postgres.CloseQuietly(q.Conn)
	if err := server.CheckDecoding(q); err != nil {
		return wal.Origin{}, err
	}
	if err := server.Identify(q); err != nil {
		return wal.Origin{}, err
	}
	return server.Origin(), nil
}

func connect(ctx context.Context, cfg postgres.Config) (postgres.Querier, *postgres.Server, error) {
	q, server, err := postgres.OpenSession(ctx, cfg, false)
	if err != nil {
		return q, nil, err
	}
	set := settings
	if server.ServerVersion >= 170000 {
		set += "; SET transaction_timeout = 0"
	}
	if err = server.CheckDecoding(q); err == nil {
		err = postgres.Classify("prepare the session", q.Exec(set))
	}
	if err != nil {
		postgres.CloseQuietly(q.Conn)
		return q, nil, err
	}
	return q, server, nil
}

// Close ends the connection, and with it lock and snapshot.
func (h *Holder) Close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	postgres.EndSession(h.q.Conn)
	h.besideMu.Lock()
	defer h.besideMu.Unlock()
	h.beside.Close()
}

// Origin is where positions of the server mean something.
func (h *Holder) Origin() wal.Origin { return h.origin }

// Ask runs something on the connection.
func (h *Holder) Ask(ctx context.Context, ask func(q postgres.Querier, version int) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.q.Ctx = ctx
	return ask(h.q, h.version)
}

// AskBeside runs something on a second connection, outside the snapshot, which the first call opens.
func (h *Holder) AskBeside(ctx context.Context, ask func(q postgres.Querier, version int) error) error {
	h.besideMu.Lock()
	defer h.besideMu.Unlock()
	if h.beside == nil {
		beside, err := Open(ctx, h.cfg)
		if err != nil {
			return err
		}
		if err := h.SameServer(beside.Origin()); err != nil {
			beside.Close()
			return err
		}
		h.beside = beside
	}
	return h.beside.Ask(ctx, ask)
}

// SameServer refuses a connection that reached another server or timeline than the one with the snapshot.
func (h *Holder) SameServer(reached wal.Origin) error {
	if reached.Lineage() == h.origin.Lineage() {
		return nil
	}
	return &fault.Error{
		Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "connect beside the snapshot",
		Err:  fmt.Errorf("two connections reached two servers: system %s on timeline %d has the snapshot, and this is %s on %d", h.origin.SystemID, h.origin.Timeline, reached.SystemID, reached.Timeline),
		Hint: "a failover may be under way: run the command again; if this stays, connect past the proxy or pooler in between",
	}
}

// WALInserted is that of package postgres.
func (h *Holder) WALInserted(ctx context.Context) (end wal.LSN, err error) {
	err = h.Ask(ctx, func(q postgres.Querier, _ int) (err error) {
		end, err = postgres.WALInserted(q)
		return err
	})
	return end, err
}

// ExplainMissing completes an error of a slot that is not there: a backfill that is to make it may be incomplete.
func (h *Holder) ExplainMissing(ctx context.Context, err error) error {
	explained := err
	_ = h.Ask(ctx, func(q postgres.Querier, _ int) error { explained = catalog.SlotMissing(q, h.cfg, err); return nil }) // it always has an answer
	return explained
}

// Lock keeps every other backfill with the slot away for as long as the connection lives. While
// somebody else has it the error is of KindBusy. After two seconds Lock calls waits once, with the reason.
func (h *Holder) Lock(ctx context.Context, waits func(text string)) error {
	began, told := time.Now(), false
	for {
		err := h.tryLock(ctx)
		e, ok := errors.AsType[*fault.Error](err)
		if !ok || e.Kind != fault.KindBusy || time.Since(began) > h.patience {
			return err
		}
		if !told && time.Since(began) > h.quiet {
			told = true
			waits(fmt.Sprintf("waiting up to %s for the lock of %s: %v", h.patience, e.Subject, e.Err))
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return err
		}
	}
}

// A command that has just ended may hold its lock for a moment: the server ends its connection later, and on a
// busy machine some seconds later.
const (
	lockPatience = 15 * time.Second
	lockQuiet    = 2 * time.Second
	lockPoll     = 100 * time.Millisecond
)

func (h *Holder) tryLock(ctx context.Context) error {
	return h.Ask(ctx, func(q postgres.Querier, _ int) error { return incomplete.Lock(q, h.cfg) })
}

// Begin takes the snapshot: the one that somebody exports, or without a name one of its own.
// What it returns is the snapshot in the server's words, for the record. The tables are locked
// against what would take their rows out of the snapshot's sight, for as long as it is held.
func (h *Holder) Begin(ctx context.Context, imported string, tables ...*Table) (shown string, err error) {
	h.tables = nil
	err = h.Ask(ctx, func(q postgres.Querier, _ int) error {
		if err := q.Exec(begin(imported)); err != nil {
			return postgres.Classify("take the snapshot", err)
		}
		if err := h.lockTables(q, tables); err != nil {
			return err
		}
		row, err := q.One("SELECT pg_catalog.pg_export_snapshot(), pg_catalog.pg_current_snapshot()")
		if err != nil {
			return postgres.Classify("export the snapshot", err)
		}
		h.id, shown = row.Text(0), row.Text(1)
		return nil
	})
	return shown, err
}

// LockTables locks tables that Begin did not, and refuses those that were written anew since.
func (h *Holder) LockTables(ctx context.Context, tables ...*Table) error {
	return h.Ask(ctx, func(q postgres.Querier, _ int) error { return h.lockTables(q, tables) })
}

func (h *Holder) lockTables(q postgres.Querier, tables []*Table) error {
	h.tables = append(h.tables, tables...)
	return keepFiles(q, tables)
}

// End gives the snapshot up, and with it the tables' locks. A statement that fails afterwards does not
// take the next ones with it.
func (h *Holder) End(ctx context.Context) error {
	return h.Ask(ctx, func(q postgres.Querier, _ int) error {
		return postgres.Classify("end the snapshot", q.Exec("ROLLBACK"))
	})
}

func begin(imported string) string {
	text := "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	if imported != "" {
		text += "; SET TRANSACTION SNAPSHOT " + postgres.QuoteLiteral(imported)
	}
	return text
}

// Table is a table whose rows are read.
type Table struct {
	Name     wal.Table
	OID      uint32
	Relation *wal.Relation // as the stream would announce it
	Shape    Shape

	command string // of whoever reads it
	from    string // what follows FROM
	filter  string // the publication's condition; empty: none
}

// Describe looks at cfg.Tables[index] as the stream would have it. It refuses what the stream
// would refuse.
func (h *Holder) Describe(ctx context.Context, index int) (t *Table, warnings []string, err error) {
	cfg := h.cfg.OfShard(0)
	t = &Table{Name: cfg.Tables[index], command: h.command}
	err = h.Ask(ctx, func(q postgres.Querier, version int) error {
		found, err := catalog.ReadTable(q, t.Name)
		if err != nil {
			return err
		}
		if found == nil {
			return catalog.TableMissing(q, cfg, t.Name)
		}
		publication, err := catalog.ReadPublication(q, version, cfg.Publication)
		switch {
		case postgres.Reason(err) == fault.ReasonPublicationMissing: // it will be made for the table
			t.Relation, _, err = catalog.DescribeTable(q, version, cfg, index)
		case err == nil:
			t.Relation, warnings, err = catalog.InspectTable(q, version, cfg, publication, t.Name)
			if !cfg.Shard.Divided() {
				t.filter = publication.Tables[t.Name].Filter
			}
		}
		if err != nil {
			return err
		}
		t.Relation.Table, t.OID, t.from = index, found.OID, found.Only()+t.Name.SQL()
		if cfg.WantsOf(index).Meta && t.Relation.Meta == nil {
			if t.Relation.Meta, err = catalog.ReadColumnMeta(q, t.Relation); err != nil {
				return err
			}
		}
		t.Shape, err = readShape(q, t)
		return err
	})
	return t, warnings, err
}

// Filter is the condition of the publication; empty: it has all rows, or those of one shard.
func (t *Table) Filter() string { return t.filter }

// readShape reads what an order can be made of.
func readShape(q postgres.Querier, t *Table) (s Shape, err error) {
	op := "look at the columns of table " + t.Name.String()
	rows, err := q.All(fmt.Sprintf(`SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), NOT %[2]s,
			a.attidentity <> '' OR coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%%', false), CASE WHEN a.attgenerated = '' THEN coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '') ELSE '' END, a.attnum,
			coalesce((SELECT pg_catalog.format('%%I.%%I', n.nspname, c.collname) FROM pg_catalog.pg_collation c JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace
				JOIN pg_catalog.pg_type t ON t.oid = a.atttypid WHERE c.oid = a.attcollation AND c.oid <> t.typcollation), '')
		FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attrelid = %[1]d AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, t.OID, catalog.NotNull))
	if err != nil {
		return s, postgres.Classify(op, err)
	}
	number := make(map[string]string, len(rows))
	for _, r := range rows {
		s.Columns = append(s.Columns, Column{Name: r[0].Text, Type: r[1].Text, Nullable: r[2].Text == "t", Sequence: r[3].Text == "t", Default: r[4].Text, Number: r[5].Text, Collation: r[6].Text})
		number[r[5].Text] = r[0].Text
	}
	// An index whose check is put off lets equal rows be seen; one with NULLs has equal ones, and so may one with another
	// collation than its column, where that takes texts for equal which differ.
	rows, err = q.All(fmt.Sprintf(`SELECT i.indexrelid, k.attnum FROM pg_catalog.pg_index i,
			LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, n)
		WHERE i.indrelid = %[1]d AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND k.n <= i.indnkeyatts
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a, unnest(i.indkey::int2[]) WITH ORDINALITY m(attnum, n)
				WHERE m.n <= i.indnkeyatts AND a.attrelid = i.indrelid AND a.attnum = m.attnum AND NOT %[2]s)
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation AND NOT c.collisdeterministic,
				unnest(i.indkey::int2[], i.indcollation::oid[]) WITH ORDINALITY m(attnum, coll, n)
				WHERE m.n <= i.indnkeyatts AND a.attrelid = i.indrelid AND a.attnum = m.attnum AND m.coll <> a.attcollation)
		ORDER BY i.indisprimary DESC, i.indnkeyatts, i.indexrelid, k.n`, t.OID, catalog.NotNull))
	if err != nil {
		return s, postgres.Classify(op, err)
	}
	last := ""
	for _, r := range rows {
		if r[0].Text != last {
			last = r[0].Text
			s.Keys = append(s.Keys, nil)
		}
		key := &s.Keys[len(s.Keys)-1]
		*key = append(*key, number[r[1].Text])
	}
	return s, nil
}

// From is what follows FROM in a query of the table's rows.
func (t *Table) From() string { return t.from }

// Published reports whether the stream has all columns of an order.
func (t *Table) Published(o *Order) bool {
	return !slices.ContainsFunc(o.By, func(c Column) bool {
		return !slices.ContainsFunc(t.Relation.Columns, func(p wal.Column) bool { return p.Name == c.Name })
	})
}

// Selection is the rows of a table that are wanted, in their order.
type Selection struct {
	*Table
	Where string // SQL condition of the operator's; empty: all rows
	Order Order

	Beside []string // further SQL expressions, which Rows.Beside has
}

// condition is what a row has to meet. A comment at the operator's end takes no parenthesis.
func (s *Selection) condition(after, upTo Tuple) string {
	text := s.Order.between(after, upTo)
	if s.filter != "" {
		text += " AND (" + s.filter + ")"
	}
	if s.Where != "" {
		text += " AND (" + s.Where + "\n)"
	}
	return text
}

// query reads the columns of the stream, and after them those of the order and what is beside.
func (s *Selection) query(after, upTo Tuple) string {
	fields := "SELECT "
	for i, c := range s.Relation.Columns {
		if i > 0 {
			fields += ", "
		}
		fields += wal.QuoteIdentifier(c.Name)
	}
	if len(s.Relation.Columns) == 0 {
		fields += "NULL"
	}
	fields += s.Order.fields()
	for _, expression := range s.Beside {
		fields += ", " + expression
	}
	return fields + " FROM " + s.from + " WHERE " + s.condition(after, upTo) + s.Order.sorted(false)
}

// CheckSelection has the server parse the selection, and the operator's condition in a second frame as
// well: only one whole expression passes both. Nothing is read.
func (h *Holder) CheckSelection(ctx context.Context, s *Selection) error {
	return h.Ask(ctx, func(q postgres.Querier, _ int) error {
		queries := []string{s.query(nil, nil)}
		if s.Where != "" {
			queries = append([]string{"SELECT CASE WHEN " + s.Where + "\nTHEN true END FROM " + s.from}, queries...)
		}
		for _, sql := range queries {
			parsed, err := q.Conn.Prepare(ctx, "", sql, nil)
			if err != nil {
				return classify(s, err)
			}
			if len(parsed.ParamOIDs) > 0 {
				return &SQLError{s.Name, errors.New("the condition has a parameter, such as $1, and has no value for it")}
			}
		}
		return nil
	})
}

// undefinedObject is the SQLSTATE of a snapshot that nobody holds any more.
const undefinedObject = "42704"

// Reader opens a connection that has the snapshot.
func (h *Holder) Reader(ctx context.Context) (*Reader, error) {
	q, _, err := connect(ctx, h.cfg)
	if err != nil {
		return nil, err
	}
	if err := q.Exec(begin(h.id)); err != nil {
		postgres.CloseQuietly(q.Conn)
		const op = "import the snapshot"
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == undefinedObject {
			return nil, &fault.Error{Kind: fault.KindRetry, Op: op, Err: fmt.Errorf("the session that holds it has ended: %w", err), Hint: "run the command again"}
		}
		return nil, postgres.Classify(op, err)
	}
	if err := h.joinLocks(q); err != nil {
		postgres.CloseQuietly(q.Conn)
		return nil, err
	}
	return &Reader{q: q}, nil
}

// joinPatience is how long a reader waits for the locks that the Holder has. Whoever is before it
// waits for the Holder, which waits for the reader: the server sees no deadlock in that, and
// writers wait behind all of them.
const joinPatience = 5 * time.Second

// joinLocks has a reader lock the tables as the Holder does.
func (h *Holder) joinLocks(q postgres.Querier) error {
	if len(h.tables) == 0 {
		return nil
	}
	err := postgres.Classify("lock tables", q.Exec(fmt.Sprintf("SET LOCAL lock_timeout = %d", joinPatience.Milliseconds())))
	if err == nil {
		err = keepFiles(q, h.tables)
	}
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Reason == fault.ReasonLockTimeout {
		e.Err = fmt.Errorf("somebody who changes it waits for the snapshot, and the reader of the rows waits behind: %w", e.Err)
		e.Hint = "the snapshot is given up, so that the change goes on; run the command again after it"
	}
	if err != nil {
		return err
	}
	return postgres.Classify("lock tables", q.Exec("SET LOCAL lock_timeout = 0"))
}

// keepFiles locks tables, and refuses those that had other files when the snapshot was taken.
// TRUNCATE, and ALTER TABLE where it writes a table anew, are not for snapshots: an older one
// sees an empty table afterwards. The catalog's row is the snapshot's, and the function looks at
// the catalog of now.
func keepFiles(q postgres.Querier, tables []*Table) error {
	for _, t := range tables {
		op := "lock table " + t.Name.String()
		if err := q.Exec("LOCK TABLE " + t.from + " IN ACCESS SHARE MODE"); err != nil {
			return postgres.PermissionHint(postgres.Classify(op, err), "run what `cdc-relay sql --for "+t.command+"` prints")
		}
		row, err := q.One(fmt.Sprintf(`SELECT count(*), pg_catalog.to_regclass(%[2]s) IS DISTINCT FROM %[1]d::oid FROM pg_catalog.pg_class c
			WHERE (c.oid = %[1]d OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(%[1]d)))
			AND c.relkind = 'r' AND c.relfilenode IS DISTINCT FROM pg_catalog.pg_relation_filenode(c.oid)`, t.OID, postgres.QuoteLiteral(t.Name.SQL())))
		if err != nil {
			return postgres.Classify(op, err)
		}
		if row.Text(1) == "t" {
			return &fault.Error{
				Kind: fault.KindRefused, Reason: fault.ReasonTableChanged, Op: "lock", Subject: "table " + t.Name.String(),
				Err:  errors.New("it is another table than when the command began: that one was renamed or dropped"),
				Hint: "give the tables their names back, and run the command again",
			}
		}
		if row.Text(0) != "0" {
			return &fault.Error{
				Kind: fault.KindRetry, Reason: fault.ReasonTableChanged, Op: "lock", Subject: "table " + t.Name.String(),
				Err:  errors.New("it was written anew or emptied since the snapshot was taken, which does not show its rows any more"),
				Hint: "run the command again",
			}
		}
	}
	return nil
}

// Alive reports whether the connection, and with it the snapshot, is there.
func (h *Holder) Alive(ctx context.Context) bool {
	return h.Ask(ctx, func(q postgres.Querier, _ int) error { return q.Exec("SELECT") }) == nil
}

// Estimate is the number of rows of a table by the server's statistics.
func (h *Holder) Estimate(ctx context.Context, t *Table) (n int64, err error) {
	err = h.Ask(ctx, func(q postgres.Querier, _ int) error {
		row, err := q.One(fmt.Sprintf(`SELECT greatest(0, pg_catalog.sum(c.reltuples))::bigint FROM pg_catalog.pg_class c
			WHERE c.oid = %d OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(%d) WHERE isleaf)`, t.OID, t.OID))
		if err != nil {
			return postgres.Classify("look at table "+t.Name.String(), err)
		}
		n, err = strconv.ParseInt(row.Text(0), 10, 64)
		return err
	})
	return n, err
}
