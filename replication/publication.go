package replication

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/wording"
)

// publicationRow is a publication with every table that it names or implies.
type publicationRow struct {
	name      string
	oid       string
	version   string // another one after each ALTER PUBLICATION but of the tables
	owner     string // OID
	insert    bool
	others    []string // further operations that it publishes
	viaRoot   bool
	allTables bool
	tables    map[Table]membership
}

// membership is how the publication shows one table.
type membership struct {
	publication string
	filter      string   // row filter, or empty
	columns     []string // names; nil when the server is too old to say, which means all
	alone       bool     // the publication has no other table
	only        string   // tableRow.only, where that was looked at
}

func (p *publicationRow) membership(table Table) membership {
	m := p.tables[table]
	m.publication, m.alone = p.name, len(p.tables) == 1
	return m
}

func publicationSubject(name string) string { return fmt.Sprintf("publication %q", name) }

// readPublication fails with ReasonPublicationMissing when there is none. It
// reads what any role may read.
func readPublication(q querier, version int, name string) (*publicationRow, error) {
	op := "look at " + publicationSubject(name)
	row, err := q.one(fmt.Sprintf(`SELECT oid, pubinsert, pubviaroot, puballtables,
			concat_ws(', ', CASE WHEN pubupdate THEN 'update' END, CASE WHEN pubdelete THEN 'delete' END, CASE WHEN pubtruncate THEN 'truncate' END), xmin, pubowner
		FROM pg_catalog.pg_publication WHERE pubname = %s`, singleQuoted(name)))
	if errors.Is(err, errNoRow) {
		return nil, &Error{
			Kind: KindRefused, Reason: ReasonPublicationMissing, Op: "look at", Subject: publicationSubject(name),
			Err: errors.New("the publication does not exist"), Hint: hintSetup,
		}
	}
	if err != nil {
		return nil, classify(op, err)
	}
	p := &publicationRow{
		name: name, oid: row.text(0), version: row.text(5), owner: row.text(6), insert: row.bool(1), viaRoot: row.bool(2), allTables: row.bool(3), tables: make(map[Table]membership),
	}
	if row.text(4) != "" {
		p.others = strings.Split(row.text(4), ", ")
	}
	filter, columns := `''`, `NULL::text[]`
	if version >= 150000 {
		filter, columns = `coalesce(rowfilter, '')`, `attnames::text[]`
	}
	// One line for each column: no array to take apart.
	rows, err := q.all(fmt.Sprintf(`SELECT schemaname, tablename, f, c FROM
			(SELECT schemaname, tablename, %s AS f, %s AS cs FROM pg_catalog.pg_publication_tables WHERE pubname = %s) t
			LEFT JOIN LATERAL unnest(cs) WITH ORDINALITY u(c, n) ON true ORDER BY 1, 2, n`, filter, columns, singleQuoted(name)))
	if err != nil {
		return nil, classify(op, err)
	}
	for _, r := range rows {
		table := Table{Schema: r[0].text, Name: r[1].text}
		shown := p.tables[table]
		shown.filter = r[2].text
		if !r[3].null {
			shown.columns = append(shown.columns, r[3].text)
		}
		p.tables[table] = shown
	}
	return p, nil
}

// warnings are about what the publication has beyond the configured tables.
func (p *publicationRow) warnings(cfg Config) []string {
	var warnings []string
	if others := cfg.unwanted(p.others); len(others) > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"%s also publishes %s, which are skipped; without a replica identity they make the application's own statements fail; %s",
			publicationSubject(p.name), strings.Join(others, ", "), p.narrow(&cfg)))
	}
	if foreign := p.foreign(cfg.Tables); len(foreign) > 0 {
		warnings = append(warnings, fmt.Sprintf("%s has %s more than are configured (%s): their rows are skipped and counted",
			publicationSubject(p.name), wording.Count(len(foreign), "table"), strings.Join(shorten(foreign), ", ")))
	}
	return warnings
}

// narrow is the advice against operations that nobody asked for. With debezium options
// the publication may be one that Debezium made, which is not for us to alter.
func (p *publicationRow) narrow(cfg *Config) string {
	run := fmt.Sprintf("run: ALTER PUBLICATION %s SET (publish = '%s')", doubleQuoted(p.name), cfg.published())
	if len(cfg.Wants) == 0 {
		return run
	}
	return "leave it as it is if Debezium made it, because the way back needs it; if `cdc-relay setup` made it, " + run
}

// foreign lists the publication's tables that are not configured. With a root
// that is configured its partitions are not shown, so they do not count.
func (p *publicationRow) foreign(configured []Table) []string {
	var foreign []string
	for table := range p.tables {
		if !slices.Contains(configured, table) {
			foreign = append(foreign, table.String())
		}
	}
	slices.Sort(foreign)
	return foreign
}

// shorten keeps a list readable.
func shorten(names []string) []string {
	if len(names) <= 3 {
		return names
	}
	return append(names[:3:3], "…")
}

// tableRow is a table in the catalog.
type tableRow struct {
	oid         uint32
	kind        string // relkind
	persistence string // relpersistence
	partition   bool
	children    bool  // an ordinary table that has, or had, others by INHERITS
	root        Table // topmost ancestor of a partition
}

// only goes before the table's name in a publication: without it the children
// would be in it too, whose rows carry their own names.
func (t *tableRow) only() string {
	if t.children {
		return "ONLY "
	}
	return ""
}

// readTable returns nil when there is no relation of that name.
func readTable(q querier, table Table) (*tableRow, error) {
	row, err := q.one(fmt.Sprintf(`SELECT c.oid, c.relkind, c.relpersistence, c.relispartition, coalesce(rn.nspname, ''), coalesce(rc.relname, ''),
			c.relkind = 'r' AND c.relhassubclass
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_catalog.pg_class rc ON c.relispartition AND rc.oid = pg_catalog.pg_partition_root(c.oid)
		LEFT JOIN pg_catalog.pg_namespace rn ON rn.oid = rc.relnamespace
		WHERE n.nspname = %s AND c.relname = %s`, singleQuoted(table.Schema), singleQuoted(table.Name)))
	if errors.Is(err, errNoRow) {
		return nil, nil
	}
	if err != nil {
		return nil, classify("look at table "+table.String(), err)
	}
	t := &tableRow{
		oid: uint32(row.int("oid", 0)), kind: row.text(1), persistence: row.text(2), partition: row.bool(3),
		root: Table{Schema: row.text(4), Name: row.text(5)}, children: row.bool(6),
	}
	return t, row.err
}

// decodable refuses what never reaches a stream.
func (t *tableRow) decodable(table Table) error {
	var cause string
	switch {
	case t.kind != "r" && t.kind != "p":
		kinds := map[string]string{"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index", "c": "a composite type"}
		cause = "it is " + kinds[t.kind] + ", whose rows are not in the WAL as its own"
		if kinds[t.kind] == "" {
			cause = "it is not an ordinary table"
		}
	case t.persistence == "u":
		cause = "it is UNLOGGED: its rows are not in the WAL"
	case t.persistence == "t":
		cause = "it is temporary: its rows are not in the WAL"
	default:
		return nil
	}
	hint := "configure a permanent table"
	if t.persistence == "u" {
		hint = "run: ALTER TABLE " + table.sql() + " SET LOGGED"
	}
	return &Error{Kind: KindRefused, Reason: ReasonTableChanged, Op: "look at", Subject: "table " + table.String(), Err: errors.New(cause), Hint: hint}
}

// publishes tells whether inserts into the table reach the stream under its own
// name, and if not, which statement makes them.
func (p *publicationRow) publishes(table Table, t *tableRow) error {
	refuse := func(cause, hint string) error {
		return &Error{
			Kind: KindRefused, Reason: ReasonTableUnpublished, Op: "look at", Subject: publicationSubject(p.name),
			Err: errors.New(cause), Hint: hint,
		}
	}
	if !p.insert {
		return refuse("it does not publish inserts", fmt.Sprintf("run: ALTER PUBLICATION %s SET (publish = 'insert')", doubleQuoted(p.name)))
	}
	if _, ok := p.tables[table]; ok {
		return nil
	}
	if t.kind == "p" && !p.viaRoot {
		// The leaves may be in it, and then rows carry the leaves' names.
		return refuse(fmt.Sprintf("it does not publish the partitioned table %s under its own name", table),
			fmt.Sprintf("run: ALTER PUBLICATION %s SET (publish_via_partition_root = true)%s", doubleQuoted(p.name), p.addHint(table)))
	}
	if _, root := p.tables[t.root]; root && t.partition {
		return refuse(fmt.Sprintf("it publishes the rows of partition %s as those of %s", table, t.root), fmt.Sprintf("configure the table %s", t.root))
	}
	return refuse(fmt.Sprintf("it does not have the table %s", table),
		fmt.Sprintf("run: ALTER PUBLICATION %s ADD TABLE %s%s", doubleQuoted(p.name), t.only(), table.sql()))
}

func (p *publicationRow) addHint(table Table) string {
	if p.allTables || len(p.tables) > 0 {
		return ""
	}
	return fmt.Sprintf("; ALTER PUBLICATION %s ADD TABLE %s", doubleQuoted(p.name), table.sql())
}

// inspectTable checks one configured table and reads its shape as the stream
// will announce it: attnum order, no dropped column, generated ones and the rest
// of a column list only as published.
func inspectTable(q querier, version int, cfg Config, p *publicationRow, table Table) (*Relation, []string, error) {
	t, err := readTable(q, table)
	if err != nil {
		return nil, nil, err
	}
	if t == nil {
		return nil, nil, tableMissing(q, cfg, table)
	}
	if err := t.decodable(table); err != nil {
		return nil, nil, err
	}
	if err := p.publishes(table, t); err != nil {
		return nil, nil, err
	}
	shown := p.membership(table)
	shown.only = t.only()
	columns, err := readColumns(q, version, t.oid, table, shown)
	if err != nil {
		return nil, nil, err
	}
	relation := columns.relation(t.oid, table)
	var warnings []string
	if cfg.Shard.Divided() {
		if err := p.filtered(cfg, version, relation); err != nil {
			return nil, nil, err
		}
	} else if filter := p.tables[table].filter; filter != "" {
		warnings = append(warnings, fmt.Sprintf("%s has a row filter on %s: rows that fail it are never delivered", publicationSubject(p.name), table))
	}
	if len(columns.published) < columns.ordinary {
		warnings = append(warnings, fmt.Sprintf("%s publishes %d of the %d columns of %s", publicationSubject(p.name), len(columns.published), columns.ordinary, table))
	}
	return relation, warnings, nil
}

// columnRows is what the catalog says about the columns of one table.
type columnRows struct {
	published []Column
	hidden    map[string]string // as in Relation.Hidden
	ordinary  int               // columns that are not generated, dropped ones aside
}

func (c *columnRows) relation(oid uint32, table Table) *Relation {
	return &Relation{OID: oid, Namespace: table.Schema, Name: table.Name, Columns: c.published, Hidden: c.hidden}
}

// readColumns reads the columns in attnum order.
func readColumns(q querier, version int, oid uint32, table Table, shown membership) (*columnRows, error) {
	// The stream names a domain by its base type, so this does too.
	rows, err := q.all(fmt.Sprintf(`SELECT a.attname, a.atttypid, a.atttypmod, (
			WITH RECURSIVE base AS (
				SELECT typname, typtype, typbasetype, typcategory FROM pg_catalog.pg_type WHERE oid = a.atttypid
				UNION ALL
				SELECT t.typname, t.typtype, t.typbasetype, t.typcategory FROM pg_catalog.pg_type t JOIN base ON base.typtype = 'd' AND t.oid = base.typbasetype
			) SELECT CASE typcategory WHEN 'A' THEN 'a' ELSE typtype::text END || typname FROM base WHERE typtype <> 'd'), a.attgenerated
		FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = %d AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, oid))
	if err != nil {
		return nil, classify("read the columns of table "+table.String(), err)
	}
	c := &columnRows{hidden: make(map[string]string)}
	for _, r := range rows {
		name, generated := r[0].text, r[4].text
		if generated == "" {
			c.ordinary++
		}
		if why := shown.hides(version, table, name, generated); why != "" {
			c.hidden[name] = why
			continue
		}
		typeOID, err := strconv.ParseUint(r[1].text, 10, 32)
		if err != nil {
			return nil, &Error{Kind: KindProtocol, Op: "read the columns of table " + table.String(), Err: err}
		}
		typeMod, err := strconv.ParseInt(r[2].text, 10, 32)
		if err != nil {
			return nil, &Error{Kind: KindProtocol, Op: "read the columns of table " + table.String(), Err: err}
		}
		column := Column{Name: name, Type: uint32(typeOID), TypeMod: int32(typeMod)}
		if kind := r[3].text; kind != "" {
			column.TypeName, column.Composite, column.Array = kind[1:], kind[0] == 'c', kind[0] == 'a'
		}
		c.published = append(c.published, column)
	}
	return c, nil
}

// hides tells why the stream lacks a column, to be read behind the column's name;
// empty when it has it.
func (m membership) hides(version int, table Table, column, generated string) string {
	listed := m.columns == nil || slices.Contains(m.columns, column)
	switch {
	// Before 18 the view lists generated columns of some tables, but no stream
	// has them.
	case generated != "" && version < 180000:
		return "is generated, which this server does not publish; write it as an ordinary column"
	case generated == "v":
		return "is generated and virtual, which no server publishes; write it as an ordinary column"
	case generated != "" && (m.columns == nil || !listed):
		return fmt.Sprintf("is generated, which publication %s does not send; run: ALTER PUBLICATION %s SET (publish_generated_columns = stored); or write it as an ordinary column", m.publication, doubleQuoted(m.publication))
	case !listed:
		return fmt.Sprintf("is not in the column list of publication %s; run: %s", m.publication, m.relist(table, append(slices.Clone(m.columns), column)))
	}
	return ""
}
