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
	"github.com/cdc-relay/cdc-relay/postgres/incomplete"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/jackc/pgx/v5/pgconn"
)

// DefaultSlotTimeout is how long the creation of a slot waits for open transactions.
const DefaultSlotTimeout = 30 * time.Second

const countTimeout = time.Minute

// SetupOptions says how far Setup goes.
type SetupOptions struct {
	// DryRun reports the steps with their SQL and changes nothing.
	DryRun bool

	// CreateTable returns the statements that create a missing table; unqualified
	// names mean its schema. They run inside Setup's transaction, so they hold no
	// BEGIN or COMMIT. Nil means that every table must exist.
	CreateTable func(wal.Table) (sql string, err error)

	// Columns, when set, returns the columns of a table that its mapping reads, and a
	// publication that is made publishes no others. It needs version 15.
	Columns func(*wal.Relation) ([]string, error)

	// Check, when set, refuses a table that the mapping cannot be used with. It runs
	// before anything is touched; for a table that is created, before that is committed.
	Check func(*wal.Relation) error

	// OnStep, when set, is called for each step once it is durable, or at once in a
	// dry run and for what exists.
	OnStep func(Step)

	// WithoutSlots leaves the slots out, which somebody else makes.
	WithoutSlots bool

	// AcceptCut makes a slot although the trigger of a cutover marks new rows as published.
	AcceptCut bool

	// SlotTimeout bounds the slot's creation, which waits for every transaction
	// that is open at its start. Defaults to 30s.
	SlotTimeout time.Duration
}

// Step is one object of Setup, Reshard or a teardown.
type Step struct {
	Object string // "table", "publication", "slot" or DroppedSlot
	Name   string
	SQL    string // what makes or drops it; empty when there is nothing to do

	// Exists: the object was there before. Nothing to do for Setup, and
	// the condition to do something for a teardown.
	Exists bool

	Of incomplete.Slot // for a teardown: whose slot it is; zero: the configuration's
}

// Subject is what errors call it.
func (s Step) Subject() string {
	if s.Object == "table" {
		return "table " + s.Name
	}
	return fmt.Sprintf("%s %q", s.Object, s.Name)
}

// SetupReport is what Setup did or, in a dry run, would do.
type SetupReport struct {
	Steps []Step

	// RowsBefore counts, by Table.String, the rows that lie before a slot that
	// this call creates: no stream will ever have them. A table that could not be
	// counted (no right to read it, or too large) is left out; so is every table
	// when the slot existed.
	RowsBefore map[string]int64

	Warnings []string
}

// Setup creates what cfg names and the server lacks: tables and publication in one transaction, or in
// two where the publication depends on the new tables' columns, then the slot. The order matters: rows
// from before the publication could not be streamed from the slot. It can be called again after any
// failure, and never alters what exists: an object that does not fit is a *fault.Error with the
// statement that makes it fit. On an error the report holds the steps that were completed.
func Setup(ctx context.Context, cfg postgres.Config, opt SetupOptions) (*SetupReport, error) {
	if err := postgres.CheckNames(cfg); err != nil {
		return nil, err
	}
	conn, err := postgres.Connect(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	defer postgres.CloseQuietly(conn)
	s := newSetup(ctx, conn, cfg, opt)
	if err := s.plan(); err != nil {
		return s.report, err
	}
	if err := s.apply(); err != nil {
		return s.report, err
	}
	s.report.Warnings = append(s.report.Warnings, s.server.Warnings...)
	return s.report, nil
}

func newSetup(ctx context.Context, conn *pgconn.PgConn, cfg postgres.Config, opt SetupOptions) *setup {
	s := &setup{cfg: cfg, opt: opt, q: postgres.Querier{Ctx: ctx, Conn: conn}, report: &SetupReport{}, filters: map[wal.Table]*wal.Relation{}, lists: map[wal.Table][]string{}}
	for _, shard := range cfg.Shards() {
		s.shards = append(s.shards, setupShard{cfg: shard})
	}
	return s
}

type setup struct {
	cfg    postgres.Config
	opt    SetupOptions
	q      postgres.Querier
	server postgres.Server
	report *SetupReport

	tables  []Step
	parents []wal.Table                 // with children by INHERITS
	filters map[wal.Table]*wal.Relation // what the rows are divided by, for each table that exists
	lists   map[wal.Table][]string      // the columns to publish, likewise; empty without SetupOptions.Columns
	shards  []setupShard                // one when nothing is divided
	later   bool                        // the rest is planned once the tables exist
}

// setupShard is a publication and the slot that streams by it.
type setupShard struct {
	cfg         postgres.Config
	publication Step
	slot        Step
	copyOf      string // the slot that this one is made from; empty: none
}

// plan reads everything and decides every step before anything is touched.
func (s *setup) plan() error {
	if err := s.server.ReadSettings(s.q); err != nil {
		return err
	}
	if err := s.server.CheckDecoding(s.q); err != nil {
		return err
	}
	if s.cfg.Shard.Divided() {
		if err := catalog.NeedsFilters(s.server.ServerVersion); err != nil {
			return err
		}
	}
	if s.opt.Columns != nil {
		if err := needsLists(s.server.ServerVersion); err != nil {
			return err
		}
	}
	if err := catalog.OnlyGeneration(s.q, s.server.ServerVersion, s.cfg); err != nil {
		return err
	}
	if err := s.roomForSlots(); err != nil {
		return err
	}
	if err := s.planPublications(); err != nil || s.later || s.opt.WithoutSlots {
		return err
	}
	for i := range s.shards {
		if err := s.planSlot(i); err != nil {
			return err
		}
	}
	return s.planCopies()
}

// roomForSlots refuses before anything is made what would end with a publication and no slot.
func (s *setup) roomForSlots() error {
	names := make([]string, 0, len(s.shards)+1)
	for _, shard := range s.shards {
		names = append(names, shard.cfg.Slot)
	}
	if s.opt.WithoutSlots { // a backfill or a cutover has one more until its end
		temporary := s.cfg.BackfillSlot()
		if slot, err := incomplete.First(s.q, s.cfg); err == nil && slot != nil {
			temporary = slot.Name
		}
		names = append(names, temporary)
	}
	return RoomForSlots(s.q, names...)
}

// RoomForSlots refuses where the server has no room for those of the slots that do not exist.
func RoomForSlots(q postgres.Querier, names ...string) error {
	row, err := q.One(fmt.Sprintf(`SELECT current_setting('max_replication_slots')::int, (SELECT count(*) FROM pg_catalog.pg_replication_slots),
		(SELECT count(*) FROM pg_catalog.pg_replication_slots WHERE slot_name = ANY (pg_catalog.string_to_array(%s, ',')))`, postgres.QuoteLiteral(strings.Join(names, ","))))
	if err != nil {
		return postgres.Classify("count the replication slots", err)
	}
	limit, taken, missing := row.Int("max_replication_slots", 0), row.Int("count", 1), len(names)-row.Int("count", 2)
	if row.Err != nil || missing <= max(0, limit-taken) {
		return row.Err
	}
	cause, hint := catalog.NoSlotsFree(limit)
	if missing > 1 {
		cause += fmt.Sprintf("; %s are needed", wording.Count(missing, "slot"))
	}
	return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonServerLimit, Op: "create", Subject: postgres.SlotSubject(names[0]), Err: errors.New(cause), Hint: hint}
}

// planPublications plans the tables too, which the publications are made for.
func (s *setup) planPublications() error {
	viaRoot := false
	for i, table := range s.cfg.Tables {
		step, partitioned, err := s.planTable(table)
		if err == nil && step.Exists {
			err = s.checkMapping(i)
		}
		if err != nil {
			return err
		}
		s.tables = append(s.tables, step)
		viaRoot = viaRoot || partitioned
		s.later = s.later || (s.cfg.Shard.Divided() || s.opt.Columns != nil) && !step.Exists
	}
	if s.later {
		s.report.Warnings = append(s.report.Warnings, "publications and slots are planned once the tables exist: filters and column lists depend on their columns")
		return nil
	}
	for i := range s.shards {
		if err := s.planPublication(i, viaRoot); err != nil {
			return err
		}
	}
	return nil
}

// checkMapping has SetupOptions.Check look at the i-th table.
func (s *setup) checkMapping(i int) error {
	if s.opt.Check == nil {
		return nil
	}
	relation, _, err := catalog.DescribeTable(s.q, s.server.ServerVersion, s.shards[0].cfg, i)
	if err != nil {
		return err
	}
	return s.opt.Check(relation)
}

func (s *setup) planTable(table wal.Table) (step Step, partitioned bool, err error) {
	step = Step{Object: "table", Name: table.String()}
	t, err := catalog.ReadTable(s.q, table)
	if err != nil {
		return step, false, err
	}
	if t != nil {
		step.Exists = true
		return step, t.Kind == "p", s.planExisting(table, t)
	}
	similar, err := catalog.SimilarTables(s.q, table)
	if err != nil {
		return step, false, err
	}
	if s.opt.CreateTable == nil || len(similar) > 0 {
		return step, false, catalog.TableMissing(s.q, s.cfg, table)
	}
	step.SQL, err = s.opt.CreateTable(table)
	if err != nil {
		return step, false, &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonTableMissing, Op: "create", Subject: "table " + table.String(), Err: err}
	}
	return step, strings.Contains(strings.ToUpper(step.SQL), "PARTITION BY"), nil
}

// planExisting refuses a table that cannot be streamed, and remembers what the
// publication has to know about it.
func (s *setup) planExisting(table wal.Table, t *catalog.TableRow) error {
	if err := t.Decodable(table); err != nil {
		return err
	}
	if t.Children {
		s.parents = append(s.parents, table)
	}
	if s.cfg.Shard.Divided() || s.opt.Columns != nil {
		columns, err := catalog.ReadColumns(s.q, s.server.ServerVersion, t.OID, table, catalog.Membership{Publication: s.cfg.Publication})
		if err != nil {
			return err
		}
		s.filters[table] = columns.Relation(t.OID, table)
	}
	if s.opt.Columns != nil {
		var err error
		if s.lists[table], err = s.listed(table, s.filters[table]); err != nil {
			return err
		}
	}
	warning, err := t.Unsent(s.q, table, s.cfg.Tables)
	if err == nil && warning != "" {
		s.report.Warnings = append(s.report.Warnings, warning+"; "+catalog.AdviceUnsent)
	}
	return postgres.Classify("look at table "+table.String(), err)
}

func (s *setup) planPublication(i int, viaRoot bool) error {
	shard := &s.shards[i]
	cfg := shard.cfg
	shard.publication = Step{Object: "publication", Name: cfg.Publication}
	p, err := catalog.ReadPublication(s.q, s.server.ServerVersion, cfg.Publication)
	if postgres.Reason(err) == fault.ReasonPublicationMissing {
		filters, err := s.conditions(cfg)
		if err != nil {
			return err
		}
		published, err := s.identified()
		if err == nil && s.opt.Columns != nil {
			err = insertsOnly(&s.cfg, published)
		}
		shard.publication.SQL = createPublication(cfg, viaRoot, published, s.lists, filters, s.parents...)
		return err
	}
	if err != nil {
		return err
	}
	shard.publication.Exists = true
	s.report.Warnings = append(s.report.Warnings, p.Warnings(cfg)...)
	return s.checkPublished(p, cfg, false)
}

// conditions are what a shard's publication filters each table by.
func (s *setup) conditions(cfg postgres.Config) (map[wal.Table]string, error) {
	if !cfg.Shard.Divided() {
		return nil, nil
	}
	conditions := make(map[wal.Table]string, len(s.filters))
	for table, relation := range s.filters {
		f, err := catalog.FilterOf(cfg, s.server.ServerVersion, relation)
		if err != nil {
			return nil, err
		}
		conditions[table] = f.SQL()
	}
	return conditions, nil
}

// checkPublished looks at the tables that exist by now; created: all do.
func (s *setup) checkPublished(p *catalog.PublicationRow, cfg postgres.Config, created bool) error {
	for i, table := range s.cfg.Tables {
		if !created && !s.tables[i].Exists {
			continue
		}
		t, err := catalog.ReadTable(s.q, table)
		if err != nil {
			return err
		}
		if t == nil {
			return catalog.TableMissing(s.q, s.cfg, table)
		}
		if err := p.Publishes(table, t); err != nil {
			return err
		}
		if err := s.checkList(p, table, t); err != nil {
			return err
		}
		if cfg.Shard.Divided() {
			if err := p.Filtered(cfg, s.server.ServerVersion, s.filters[table]); err != nil {
				return err
			}
		}
	}
	return nil
}

// identified is the publication's option publish: inserts, and what the mappings
// want beyond them, as long as every table has a replica identity. Without one the
// application's own updates and deletes would fail.
func (s *setup) identified() (string, error) {
	if len(s.cfg.Operations()) == 0 {
		return "insert", nil
	}
	for i, table := range s.cfg.Tables {
		if !s.tables[i].Exists {
			continue // our own tables have a primary key
		}
		row, err := s.q.One(fmt.Sprintf(`SELECT c.relreplident IN ('f', 'i') OR c.relreplident = 'd' AND EXISTS (
				SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
			FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = %s AND c.relname = %s`, postgres.QuoteLiteral(table.Schema), postgres.QuoteLiteral(table.Name)))
		if err != nil {
			return "", postgres.Classify("look at table "+table.String(), err)
		}
		if !row.Bool(0) {
			s.report.Warnings = append(s.report.Warnings, fmt.Sprintf("table %s has no replica identity, so only inserts are published: %s of it would fail",
				table, strings.Join(s.cfg.Operations(), " and ")))
			return "insert", nil
		}
	}
	return s.cfg.Published(), nil
}

// createPublication publishes what published says, of parents without their children,
// and of the tables that have a list those columns, that have a condition the rows
// that meet it.
func createPublication(cfg postgres.Config, viaRoot bool, published string, lists map[wal.Table][]string, conditions map[wal.Table]string, parents ...wal.Table) string {
	names := make([]string, len(cfg.Tables))
	for i, table := range cfg.Tables {
		names[i] = (&catalog.TableRow{Children: slices.Contains(parents, table)}).Only() + table.SQL() + catalog.ColumnList(lists[table])
		if condition := conditions[table]; condition != "" {
			names[i] += " WHERE (" + condition + ")"
		}
	}
	tables := ""
	if len(names) > 0 { // a stream of messages alone still needs a publication
		tables = " FOR TABLE " + strings.Join(names, ", ")
	}
	options := "publish = '" + published + "'"
	if viaRoot {
		options += ", publish_via_partition_root = true"
	}
	return fmt.Sprintf("CREATE PUBLICATION %s%s WITH (%s)", wal.QuoteIdentifier(cfg.Publication), tables, options)
}

func (s *setup) planSlot(i int) error {
	shard := &s.shards[i]
	name := shard.cfg.Slot
	shard.slot = Step{Object: "slot", Name: name}
	row, err := catalog.ReadSlot(s.q, s.server.ServerVersion, name)
	if postgres.Reason(err) == fault.ReasonSlotMissing {
		if err := s.refuseWhileIncomplete(name); err != nil {
			return err
		}
		if err := s.refuseAfterCut(name); err != nil {
			return err
		}
		shard.slot.SQL = createSlot(name, s.server.ServerVersion)
		if i > 0 {
			return nil
		}
		s.noteIdle(shard.cfg)
		return s.foretellSlot(name)
	}
	if err != nil {
		return err
	}
	shard.slot.Exists = true
	if err := row.Usable(name); err != nil {
		return err
	}
	if s.published() {
		return nil
	}
	// The stream looks a publication up as of each row's WAL position. Up to 17 it
	// would be stuck at the first row for ever, from 18 on leave rows out.
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonSlotUnusable, Op: "create", Subject: postgres.PublicationSubject(shard.cfg.Publication),
		Err:  fmt.Errorf("%s is older than the publication would be, and cannot stream rows from before it", postgres.SlotSubject(name)),
		Hint: catalog.HintNamed(s.q, shard.cfg, row.Confirmed),
	}
}

// noteIdle names slots whose rows the new one will not have: its name may be wrong.
func (s *setup) noteIdle(cfg postgres.Config) {
	others := catalog.IdleSlots(s.q, cfg)
	if others == "" {
		return
	}
	again := "correct postgres.slot"
	if !s.opt.DryRun {
		again += ", and drop " + postgres.SlotSubject(cfg.Slot)
	}
	s.report.Warnings = append(s.report.Warnings, fmt.Sprintf("%s: rows that wait there are not in %s; if it is this relay's, %s", others, postgres.SlotSubject(cfg.Slot), again))
}

// foretellSlot warns in a dry run of the step that the role has no right to take.
// Managed services have roles of their own in place of the attribute.
func (s *setup) foretellSlot(name string) error {
	if !s.opt.DryRun {
		return nil
	}
	row, err := s.q.One(`SELECT current_user, rolsuper OR rolreplication OR EXISTS (
			SELECT FROM pg_catalog.pg_roles m WHERE m.rolname = 'rds_replication' AND pg_catalog.pg_has_role(m.oid, 'MEMBER'))
		FROM pg_catalog.pg_roles WHERE rolname = current_user`)
	if err != nil {
		return postgres.Classify("read the role's rights", err)
	}
	if !row.Bool(1) {
		role := wal.QuoteIdentifier(row.Text(0))
		s.report.Warnings = append(s.report.Warnings, fmt.Sprintf(
			"role %s has no REPLICATION, so creating %s would fail; run setup a second time as the relay's role, which makes the slot, or as a superuser: ALTER ROLE %s REPLICATION (Amazon RDS: GRANT rds_replication TO %s)",
			role, postgres.SlotSubject(name), role, role))
	}
	return row.Err
}

func createSlot(name string, version int) string {
	const call = "SELECT pg_catalog.pg_create_logical_replication_slot(%s, 'pgoutput', false, false%s)"
	failover := ""
	if version >= postgres.FailoverVersion {
		failover = ", true" // synchronised to a standby that asks for it
	}
	return fmt.Sprintf(call, postgres.QuoteLiteral(name), failover)
}

func (s *setup) apply() error {
	if s.later {
		return s.applyLater()
	}
	if err := s.applyTransaction(); err != nil {
		return err
	}
	if s.opt.WithoutSlots {
		return nil
	}
	if slices.ContainsFunc(s.shards, func(shard setupShard) bool { return !shard.slot.Exists }) {
		s.countRows()
	}
	for _, shard := range s.shards {
		if !shard.slot.Exists && !s.opt.DryRun {
			if err := s.createSlot(shard.slot); err != nil {
				return err
			}
			if shard.copyOf != "" {
				s.warn(copyFailover(s.q, s.cfg, s.server.ServerVersion, shard.copyOf, shard.slot.Name))
			}
		}
		s.done(shard.slot)
	}
	return nil
}

// applyLater makes the tables, and then plans what depends on them.
func (s *setup) applyLater() error {
	if s.opt.DryRun {
		for _, table := range s.tables {
			s.done(table)
		}
		return nil
	}
	if err := s.inTransaction(s.tables, nil); err != nil {
		return err
	}
	for _, table := range s.tables {
		s.done(table)
	}
	made, opt := s.tables, s.opt
	rest := newSetup(s.q.Ctx, s.q.Conn, s.cfg, opt)
	if err := rest.plan(); err != nil {
		return err
	}
	rest.opt.OnStep = func(step Step) {
		if step.Object != "table" && opt.OnStep != nil {
			opt.OnStep(step)
		}
	}
	err := rest.apply()
	s.report = rest.report
	s.report.Steps = slices.DeleteFunc(s.report.Steps, func(step Step) bool { return step.Object == "table" })
	s.report.Steps = append(slices.Clone(made), s.report.Steps...)
	return err
}

func (s *setup) done(step Step) {
	s.report.Steps = append(s.report.Steps, step)
	if s.opt.OnStep != nil {
		s.opt.OnStep(step)
	}
}

// applyTransaction makes tables and publication, or neither.
func (s *setup) applyTransaction() error {
	steps := slices.Clone(s.tables)
	for _, shard := range s.shards {
		steps = append(steps, shard.publication)
	}
	todo := false
	for _, step := range steps {
		todo = todo || step.SQL != ""
	}
	if todo && !s.opt.DryRun {
		if err := s.inTransaction(steps, s.shards); err != nil {
			return err
		}
	}
	for _, step := range steps {
		s.done(step)
	}
	return nil
}

func (s *setup) inTransaction(steps []Step, shards []setupShard) error {
	if err := s.q.Exec("BEGIN"); err != nil {
		return postgres.Classify("begin a transaction", err)
	}
	err := s.run(steps, shards)
	if err == nil {
		return postgres.Classify("commit table and publication", s.q.Exec("COMMIT"))
	}
	// A failed rollback means a dead connection, which rolls back as well.
	_ = s.q.Exec("ROLLBACK")
	return err
}

func (s *setup) run(steps []Step, shards []setupShard) error {
	for i, step := range steps {
		if step.SQL == "" {
			continue
		}
		sql := step.SQL
		if step.Object == "table" {
			sql = fmt.Sprintf("SET LOCAL search_path = %s, public; %s", wal.QuoteIdentifier(s.cfg.Tables[i].Schema), sql)
		}
		if err := s.q.Exec(sql); err != nil {
			hint := "run setup as the owner of the tables, with CREATE on the database and the schema: " + asAnother
			if s.opt.WithoutSlots { // a backfill or a cutover, which refuses the slot that setup makes
				hint = "as the owner of the tables, with CREATE on the database, run: " + strings.TrimRight(step.SQL, "; \n") + "; `cdc-relay sql --for backfill`, or `--for cutover`, prints it with the grants"
			}
			return postgres.PermissionHint(postgres.Classify("create "+step.Subject(), err), hint)
		}
		if step.Object == "table" {
			if err := s.checkMapping(i); err != nil {
				return err
			}
		}
	}
	for _, shard := range shards {
		p, err := catalog.ReadPublication(s.q, s.server.ServerVersion, shard.cfg.Publication)
		if err != nil {
			return err
		}
		if err := s.checkPublished(p, shard.cfg, true); err != nil {
			return err
		}
	}
	return nil
}

// asAnother is how one run of setup has another role than the relay.
const asAnother = "cdc-relay setup --set postgres.url=postgres://OWNER@host/database, and --set postgres.password_file=… if it has its own password"

// countRows counts as late as possible before the slot. Failing to count is no
// reason to fail: the number is for the user's information.
func (s *setup) countRows() {
	s.report.RowsBefore = make(map[string]int64)
	if err := s.q.Exec(fmt.Sprintf("SET statement_timeout = %d", countTimeout.Milliseconds())); err != nil {
		return
	}
	for i, table := range s.cfg.Tables {
		if !s.tables[i].Exists {
			s.report.RowsBefore[table.String()] = 0
			continue
		}
		row, err := s.q.One("SELECT count(*) FROM " + table.SQL())
		if err != nil {
			continue
		}
		if n := row.Bigint("count", 0); n != nil {
			s.report.RowsBefore[table.String()] = *n
		}
	}
}

func (s *setup) createSlot(step Step) error {
	timeout := s.opt.SlotTimeout
	if timeout <= 0 {
		timeout = DefaultSlotTimeout
	}
	if err := s.q.Exec(fmt.Sprintf("SET statement_timeout = %d", max(1, timeout.Milliseconds()))); err != nil {
		return postgres.Classify("create "+postgres.SlotSubject(step.Name), err)
	}
	err := s.q.Exec(step.SQL)
	if err == nil {
		return nil
	}
	hint := "table and publication are there: run `cdc-relay setup` again as the relay's role, which makes the slot; that role, or the one that runs setup, needs REPLICATION (ALTER ROLE … REPLICATION; Amazon RDS: GRANT rds_replication)"
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && strings.Contains(pg.Message, "output plugin") {
		hint = "add pgoutput to the server's output_plugin_libraries"
	}
	return slotFailure(s.q, step.Name, err, timeout, "`cdc-relay setup` again", hint)
}
