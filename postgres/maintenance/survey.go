package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Survey is what a server shows of a table that rows are to go from. Nobody has locked
// anything for it.
type Survey struct {
	OID       uint32
	Kind      string // relkind
	Permanent bool
	Rows      int64 // an estimate
	Columns   []Column
	Unique    bool   // no two rows are equal in all columns
	Role      string // that we are connected as

	MaySelect, MayDelete, MayLock bool // MayLock: UPDATE on a column

	Triggers    []string // that a delete fires
	ForeignKeys []string // of other tables, that a delete looks into
	Cascades    []string // foreign keys by which a delete takes rows of published tables, or of the archive, with it
	NoIdentity  []string // publications for which a delete fails: they publish deletes, and the table has no replica identity
	Deletes     []string // publications that publish deletes of it

	Streamed

	Archive *ArchiveSurvey // nil: there is none to be

	Standbys Standbys
}

// Streamed says which rows of a table are in a stream.
type Streamed struct {
	Filters     []string          // publications of ours that leave some of its rows out
	Unpublished []string          // publications of ours that do not have it, or do not exist
	Published   map[string]string // as catalog.PublishedAs has it
	Changed     bool              // set by whoever knows an earlier Published

	// What was done since a slot's record was written; set by whoever knows the records.
	LeftOut   []string // publications that changed
	Attached  []string // partitions that may have had rows when they were attached
	Rewritten []string // tables that may have been unlogged for a while
}

// Column is one of a table.
type Column struct {
	Name      string
	Type      string // as format_type has it
	Generated bool
	NotNull   bool
	Default   string // as pg_get_expr has it; empty without one
}

// ArchiveSurvey is what a server shows of the archive.
type ArchiveSurvey struct {
	Exists       bool
	Kind         string
	Permanent    bool
	Columns      []Column
	Below        bool     // it is the table, or one of the two inherits from the other
	Unlogged     []string // partitions of it that are unlogged, or foreign tables
	Publications []string // that have it or a partition of it, of those that slots of ours use
	MayInsert    bool
}

// Standbys is how far they are behind.
type Standbys struct {
	Lag    time.Duration // of the one that is furthest behind; zero: none is known to be
	Hidden int           // connections of which our role sees nothing
}

// Surveyor looks at tables over a connection of its own, and takes no lock. It is to be closed.
type Surveyor struct {
	session  Session
	unfilled map[string]bool // see filled
}

// OpenSurvey connects.
func OpenSurvey(ctx context.Context, cfg postgres.Config) (*Surveyor, error) {
	cfg.ApplicationName = applicationName
	q, server, err := postgres.OpenSession(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	if err := server.CheckDecoding(q); err != nil {
		postgres.CloseQuietly(q.Conn)
		return nil, err
	}
	s := &Surveyor{session: Session{q: q, version: server.ServerVersion}}
	if err := q.Exec(settings + "; SET default_transaction_read_only = on"); err != nil {
		s.Close()
		return nil, postgres.Classify("prepare to look at tables", err)
	}
	if err := s.session.identify(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the connection.
func (s *Surveyor) Close() { s.session.Close() }

// Lineage is that of the server.
func (s *Surveyor) Lineage() wal.Lineage { return s.session.lineage }

// Slots shows those of the names that exist.
func (s *Surveyor) Slots(ctx context.Context, names []string) ([]proof.Slot, error) {
	return s.session.Slots(ctx, names)
}

// ExplainMissing completes an error of a slot that is not there: a backfill that is to make it may be incomplete.
func (s *Surveyor) ExplainMissing(ctx context.Context, cfg postgres.Config, err error) error {
	s.session.q.Ctx = ctx
	return catalog.SlotMissing(s.session.q, cfg, err)
}

// Nudge has the flush position of a quiet server reach its insert position.
func (s *Surveyor) Nudge(ctx context.Context) error { return s.session.Nudge(ctx) }

// Fence is the end of the WAL.
func (s *Surveyor) Fence(ctx context.Context) (wal.LSN, error) { return s.session.Fence(ctx) }

// Table reads the catalog. publications are those of the configuration.
func (s *Surveyor) Table(ctx context.Context, table wal.Table, archive *wal.Table, publications []string) (*Survey, error) {
	s.session.q.Ctx = ctx
	var found *Survey
	err := whileDropped(func() (err error) {
		if found, err = s.table(table, archive, publications); err == nil && archive != nil {
			found.Archive, err = s.archive(found.OID, *archive, publications)
		}
		return err
	})
	if err == nil {
		found.Standbys, err = s.Standbys(ctx)
	}
	if err != nil {
		return nil, postgres.Classify("look at table "+table.String(), err)
	}
	return found, nil
}

// SurveyPublished reads again what decides whether the rows of a table are in a stream: a Survey with its
// OID, Filters, Unpublished and Published alone.
func (s *Surveyor) SurveyPublished(ctx context.Context, oid uint32, publications []string) (*Survey, error) {
	s.session.q.Ctx = ctx
	t := &Survey{OID: oid}
	return t, postgres.Classify("look at publications", whileDropped(func() error { return s.ask(s.sent(t, publications)) }))
}

// whileDropped looks again where a publication went while it was looked at: the server lists all of
// them, also those of others, and fails on one that is not there any more when its tables are asked
// for. That one of ours is missing is no error here, but part of what is found.
func whileDropped(look func() error) (err error) {
	for range 5 {
		if err = look(); postgres.SQLState(err) != undefinedObject {
			return err
		}
	}
	return err
}

const undefinedObject = "42704"

// question is a statement, and the function that gets its rows.
type question struct {
	sql  string
	take func(rows []postgres.Cells)
}

// ask asks all of them in one message.
func (s *Surveyor) ask(questions []question) error {
	statements := make([]string, len(questions))
	for i, q := range questions {
		statements[i] = q.sql
	}
	rows, err := s.session.q.Each(statements)
	for i := range rows {
		questions[i].take(rows[i])
	}
	return err
}

// listed gives the first value of each row to a list.
func listed(into *[]string) func(rows []postgres.Cells) {
	return func(rows []postgres.Cells) {
		*into = nil
		for _, row := range rows {
			*into = append(*into, row[0].Text)
		}
	}
}

// sent asks which rows of the table are in a stream.
func (s *Surveyor) sent(t *Survey, publications []string) []question {
	names := postgres.NamesSQL(publications)
	questions := []question{
		{fmt.Sprintf("SELECT unnest(%[2]s) EXCEPT SELECT p.pubname "+publishes+" AND p.pubinsert ORDER BY 1", t.OID, names), listed(&t.Unpublished)},
		{catalog.PublishedSQL(s.session.version, t.OID, publications), func(rows []postgres.Cells) { t.Published = catalog.Published(rows) }},
	}
	if s.session.version < 150000 { // there are no row filters
		return questions
	}
	return append(questions, question{fmt.Sprintf("SELECT DISTINCT p.pubname "+publishes+" AND p.pubname = ANY (%[2]s) AND pt.qual IS NOT NULL ORDER BY 1", t.OID, names), listed(&t.Filters)})
}

// countedRows is up to where the rows are counted of a table that nobody has analysed yet.
const countedRows = 200_000

func (s *Surveyor) table(table wal.Table, archive *wal.Table, publications []string) (*Survey, error) {
	row, err := s.session.q.One(fmt.Sprintf(`SELECT c.oid, c.relkind, c.relpersistence = 'p', (CASE WHEN c.reltuples > 0 AND c.relpages > 0 THEN c.reltuples / c.relpages * pages.n ELSE -1 END)::bigint, current_user,
			has_table_privilege(c.oid, 'SELECT'), has_table_privilege(c.oid, 'DELETE'), has_any_column_privilege(c.oid, 'UPDATE'),
			EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
				AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey) AND NOT %[3]s))
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace,
			LATERAL (SELECT coalesce(pg_catalog.pg_relation_size(c.oid), 0) / current_setting('block_size')::bigint AS n) pages
		WHERE n.nspname = %[1]s AND c.relname = %[2]s`,
		postgres.QuoteLiteral(table.Schema), postgres.QuoteLiteral(table.Name), catalog.NotNull))
	if errors.Is(err, postgres.ErrNoRow) {
		return nil, &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonTableMissing, Op: "look at", Subject: "table " + table.String(), Err: errors.New("it does not exist")}
	}
	if err != nil {
		return nil, err
	}
	oid, err := strconv.ParseUint(row.Text(0), 10, 32)
	if err != nil {
		return nil, err
	}
	t := &Survey{OID: uint32(oid), Kind: row.Text(1), Permanent: row.Bool(2), Role: row.Text(4), MaySelect: row.Bool(5), MayDelete: row.Bool(6), MayLock: row.Bool(7), Unique: row.Bool(8)}
	if t.Rows, err = strconv.ParseInt(row.Text(3), 10, 64); err != nil {
		return nil, err
	}
	if t.Rows < 0 && t.MaySelect && t.Kind == "r" {
		row, err := s.session.q.One(fmt.Sprintf("SELECT count(*) FROM (SELECT FROM ONLY %s LIMIT %d) rows", table.SQL(), countedRows))
		if err != nil {
			return nil, err
		}
		t.Rows = *row.Bigint("rows", 0)
	}
	questions := append(s.sent(t, publications), columnsOf(t.OID, &t.Columns), cascades(t, archive, publications))
	for _, list := range []struct {
		into *[]string
		sql  string
	}{
		{&t.Triggers, `SELECT tgname FROM pg_catalog.pg_trigger WHERE tgrelid = %[1]d AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 8 <> 0 ORDER BY 1`},
		{&t.ForeignKeys, `SELECT pg_catalog.format('%%s of %%s.%%s', k.conname, n.nspname, c.relname) FROM pg_catalog.pg_constraint k
			JOIN pg_catalog.pg_class c ON c.oid = k.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE k.confrelid = %[1]d AND k.contype = 'f' ORDER BY 1`},
		{&t.Deletes, `SELECT DISTINCT p.pubname ` + publishes + ` AND p.pubdelete ORDER BY 1`},
		{&t.NoIdentity, `SELECT DISTINCT p.pubname ` + publishes + ` AND p.pubdelete AND ` + noIdentity + ` ORDER BY 1`},
	} {
		questions = append(questions, question{fmt.Sprintf(list.sql, t.OID), listed(list.into)})
	}
	return t, s.ask(questions)
}

// publishes are the publications that have a table, however they name it; a partition is also in
// those of the tables above it.
const publishes = publishing + ` WHERE pt.relid IN (SELECT %[1]d UNION SELECT relid FROM pg_catalog.pg_partition_ancestors(%[1]d))`

const publishing = `FROM pg_catalog.pg_publication p CROSS JOIN LATERAL pg_catalog.pg_get_publication_tables(p.pubname::text) pt`

// noIdentity is the condition that a table has no replica identity. Of a partition its own counts.
const noIdentity = `EXISTS (SELECT FROM pg_catalog.pg_class t WHERE t.oid = %[1]d AND (t.relreplident = 'n'
	OR t.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = t.oid AND i.indisprimary AND i.indisvalid)
	OR t.relreplident = 'i' AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = t.oid AND i.indisreplident AND i.indisvalid)))`

func (s *Surveyor) list(sql string) (list []string, err error) {
	err = s.ask([]question{{sql, listed(&list)}})
	return list, err
}

// columnsOf asks for the columns of a table.
func columnsOf(oid uint32, into *[]Column) question {
	return question{fmt.Sprintf(`SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attgenerated <> '', %[2]s, coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '')
		FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attrelid = %[1]d AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, oid, catalog.NotNull), func(rows []postgres.Cells) {
		*into = make([]Column, 0, len(rows))
		for _, row := range rows {
			*into = append(*into, Column{Name: row[0].Text, Type: row[1].Text, Generated: row[2].Text == "t", NotNull: row[3].Text == "t", Default: row[4].Text})
		}
	}}
}

func (s *Surveyor) archive(oid uint32, archive wal.Table, publications []string) (*ArchiveSurvey, error) {
	row, err := s.session.q.One(fmt.Sprintf(`WITH RECURSIVE below(top, relid) AS (
			SELECT inhparent, inhrelid FROM pg_catalog.pg_inherits UNION SELECT b.top, i.inhrelid FROM below b JOIN pg_catalog.pg_inherits i ON i.inhparent = b.relid)
		SELECT c.oid, c.relkind, c.relpersistence = 'p', has_any_column_privilege(c.oid, 'INSERT'),
			c.oid = %[1]d OR EXISTS (SELECT FROM below WHERE top = %[1]d AND relid = c.oid OR top = c.oid AND relid = %[1]d)
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %[2]s AND c.relname = %[3]s`,
		oid, postgres.QuoteLiteral(archive.Schema), postgres.QuoteLiteral(archive.Name)))
	if errors.Is(err, postgres.ErrNoRow) {
		return &ArchiveSurvey{}, nil
	}
	if err != nil {
		return nil, err
	}
	a := &ArchiveSurvey{Exists: true, Kind: row.Text(1), Permanent: row.Bool(2), MayInsert: row.Bool(3), Below: row.Bool(4)}
	of, err := strconv.ParseUint(row.Text(0), 10, 32)
	if err != nil {
		return nil, err
	}
	return a, s.ask([]question{columnsOf(uint32(of), &a.Columns), {fmt.Sprintf(`SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_partition_tree(%d) t JOIN pg_catalog.pg_class c ON c.oid = t.relid
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE t.isleaf AND (c.relkind <> 'r' OR c.relpersistence <> 'p') ORDER BY 1`, of), listed(&a.Unlogged)},
		{fmt.Sprintf("SELECT p.pubname "+publishes+" AND p.pubname = ANY (%[2]s) UNION SELECT p.pubname "+publishing+
			" WHERE pt.relid IN (SELECT relid FROM pg_catalog.pg_partition_tree(%[1]d)) AND p.pubname = ANY (%[2]s) ORDER BY 1", of, postgres.NamesSQL(publications)), listed(&a.Publications)}})
}

// cascades asks for Survey.Cascades. It follows ON DELETE CASCADE from table to table.
func cascades(t *Survey, archive *wal.Table, publications []string) question {
	isArchive := "false"
	if archive != nil {
		isArchive = fmt.Sprintf("n.nspname = %s AND c.relname = %s", postgres.QuoteLiteral(archive.Schema), postgres.QuoteLiteral(archive.Name))
	}
	return question{fmt.Sprintf(`WITH RECURSIVE taken AS (SELECT k.oid, k.conname, k.conrelid FROM pg_catalog.pg_constraint k WHERE k.contype = 'f' AND k.confdeltype = 'c' AND k.confrelid = %[1]d
			UNION SELECT k.oid, k.conname, k.conrelid FROM taken JOIN pg_catalog.pg_constraint k ON k.contype = 'f' AND k.confdeltype = 'c' AND k.confrelid = taken.conrelid)
		SELECT pg_catalog.format('%%s of %%s.%%s', taken.conname, n.nspname, c.relname) FROM taken
		JOIN pg_catalog.pg_class c ON c.oid = taken.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE %[2]s OR c.oid IN (SELECT pt.relid %[3]s WHERE p.pubname = ANY (%[4]s)) ORDER BY 1`, t.OID, isArchive, publishing, postgres.NamesSQL(publications)), listed(&t.Cascades)}
}

// Standbys looks at the physical replication of the server. Connections that read a logical
// slot are left out: they are relays.
func (s *Surveyor) Standbys(ctx context.Context) (Standbys, error) {
	s.session.q.Ctx = ctx
	return readStandbys(s.session.q)
}

func readStandbys(q postgres.Querier) (Standbys, error) {
	row, err := q.One(`SELECT coalesce(extract(epoch FROM max(r.replay_lag)), 0), count(*) FILTER (WHERE r.state IS NULL)
		FROM pg_catalog.pg_stat_replication r WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots l WHERE l.slot_type = 'logical' AND l.active_pid = r.pid)`)
	if err != nil {
		return Standbys{}, postgres.Classify("look at the standbys", err)
	}
	seconds, err := strconv.ParseFloat(row.Text(0), 64)
	if err != nil {
		return Standbys{}, err
	}
	return Standbys{Lag: time.Duration(seconds * float64(time.Second)), Hidden: row.Int("hidden", 1)}, row.Err
}

// Standbys is that of Surveyor, over the session's connection.
func (s *Session) Standbys(ctx context.Context) (Standbys, error) {
	s.q.Ctx = ctx
	return readStandbys(s.q)
}

// Due counts the rows that a condition selects.
type Due struct {
	Rows    int64
	Oldest  *time.Time // nil: there is none
	Undated int64      // whose time is NULL, or infinite and not selected: they are never due
	Counted bool       // false: it took too long
}

// Condition looks whether SQL that an operator wrote is one condition on the table. The server
// is asked twice: what leaves its parentheses is an expression in the first frame or in the
// second, never in both. Each is sent in a message that takes one statement.
func (s *Surveyor) Condition(ctx context.Context, table wal.Table, condition string) error {
	for _, sql := range []string{
		fmt.Sprintf("EXPLAIN SELECT FROM ONLY %s WHERE (%s\n)", table.SQL(), condition),
		fmt.Sprintf("EXPLAIN SELECT CASE WHEN %s\nTHEN true END FROM ONLY %s", condition, table.SQL()),
	} {
		if result := s.session.q.Conn.ExecParams(ctx, sql, nil, nil, nil, nil).Read(); result.Err != nil {
			return result.Err
		}
	}
	return nil
}

// Index names the index by which rows in the order of a column are found, empty without one.
func (s *Surveyor) Index(ctx context.Context, work Work, oid uint32) (string, error) {
	s.session.q.Ctx = ctx
	session := &Session{q: s.session.q, work: work, oid: oid}
	return s.indexOf(session.byIndex(work.Limit))
}

// IndexTo names an index that leads to the rows that meet a condition and past the others, empty without
// one. Without an order to have, a server considers no other index: not one that has every row.
func (s *Surveyor) IndexTo(ctx context.Context, table wal.Table, condition string) (string, error) {
	s.session.q.Ctx = ctx
	return s.indexOf(fmt.Sprintf("SELECT ctid, xmin FROM ONLY %s WHERE %s LIMIT 1", table.SQL(), condition))
}

// indexOf names the index by which a server would find the rows of a statement, empty without one.
func (s *Surveyor) indexOf(sql string) (string, error) {
	if err := s.session.q.Exec("BEGIN READ ONLY" + withIndex); err != nil {
		return "", postgres.Classify("look for an index", err)
	}
	lines, err := s.list("EXPLAIN (COSTS off) " + sql)
	if end := s.session.q.Exec("ROLLBACK"); err == nil {
		err = end
	}
	if err != nil {
		return "", postgres.Classify("look for an index", err)
	}
	return indexIn(lines), nil
}

// indexIn finds the index of a plan that sorts nothing but rows of one value.
func indexIn(plan []string) (index string) {
	for _, line := range plan {
		line = strings.TrimPrefix(strings.TrimSpace(line), "->")
		switch line = strings.TrimSpace(line); {
		case line == "Sort":
			return ""
		case strings.HasPrefix(line, "Index Scan "), strings.HasPrefix(line, "Index Only Scan "): // Backward may follow
			_, rest, _ := strings.Cut(line, " using ")
			index, _, _ = strings.Cut(rest, " on ")
		}
	}
	return index
}

// countTimeout bounds the counting.
const countTimeout = 15 * time.Second

// CountDue counts what a condition selects. age is the column that says how old a row is.
func (s *Surveyor) CountDue(ctx context.Context, table wal.Table, age, condition string) (Due, error) {
	s.session.q.Ctx = ctx
	op := "count the rows of table " + table.String()
	if err := s.session.q.Exec(fmt.Sprintf("SET statement_timeout = %d", countTimeout.Milliseconds())); err != nil {
		return Due{}, postgres.Classify(op, err)
	}
	row, err := s.session.q.One(fmt.Sprintf("SELECT count(*) FILTER (WHERE %[2]s), extract(epoch FROM min(%[3]s) FILTER (WHERE %[2]s AND isfinite(%[3]s))), count(*) FILTER (WHERE %[3]s IS NULL OR NOT isfinite(%[3]s) AND (%[2]s) IS NOT TRUE) FROM ONLY %[1]s",
		table.SQL(), condition, age))
	if e := postgres.Classify(op, err); e != nil {
		if postgres.Reason(e) == fault.ReasonTimeout && !s.session.q.Conn.IsClosed() {
			return Due{}, nil
		}
		return Due{}, e
	}
	due := Due{Rows: *row.Bigint("rows", 0), Undated: *row.Bigint("rows without a time", 2), Counted: true}
	if !row.Cells[1].Null {
		seconds, err := strconv.ParseFloat(row.Text(1), 64)
		if err != nil {
			return Due{}, err
		}
		oldest := time.UnixMicro(int64(seconds * 1e6)).UTC()
		due.Oldest = &oldest
	}
	return due, row.Err
}

// Oldest is the age in seconds of the oldest row that meets a condition; nil: there is none. now is
// the time, and age the column that says how old a row is. indexed: an index leads there, which is to be used.
func (s *Surveyor) Oldest(ctx context.Context, table wal.Table, now, age, condition string, indexed bool) (*float64, error) {
	s.session.q.Ctx = ctx
	begin := ""
	if indexed {
		begin = withIndex
	}
	rows, err := s.session.readOnly(begin, fmt.Sprintf("SELECT extract(epoch FROM %[1]s - %[2]s) FROM ONLY %[3]s WHERE isfinite(%[2]s) AND (%[4]s\n) ORDER BY %[2]s LIMIT 1",
		now, age, table.SQL(), cmp.Or(condition, "true")))
	if err != nil || len(rows) == 0 {
		return nil, postgres.Classify("look for the oldest row of table "+table.String(), err)
	}
	seconds, err := strconv.ParseFloat(string(rows[0][0]), 64)
	return &seconds, err
}
