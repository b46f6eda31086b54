package replication

import (
	"errors"
	"fmt"
	"slices"
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

// missing warns of operations that a table asks for and the publication does not send.
func (p *publicationRow) missing(w Wants, table Table) []string {
	lacks := slices.DeleteFunc(w.operations(), func(op string) bool { return slices.Contains(p.others, op) })
	if len(lacks) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s does not publish %s, which the mapping of table %s would look at: such changes are not seen",
		publicationSubject(p.name), strings.Join(lacks, " and "), table)}
}

// relist is the statement that publishes a table with these columns and leaves the
// publication's other tables, and the row filter, as they are.
func (m membership) relist(table Table, columns []string) string {
	entry := m.only + table.sql() + columnList(columns)
	if m.filter != "" {
		entry += " WHERE (" + m.filter + ")"
	}
	name := doubleQuoted(m.publication)
	if m.alone {
		return fmt.Sprintf("ALTER PUBLICATION %s SET TABLE %s", name, entry)
	}
	return fmt.Sprintf("BEGIN; ALTER PUBLICATION %s DROP TABLE %s%s; ALTER PUBLICATION %s ADD TABLE %s; COMMIT", name, m.only, table.sql(), name, entry)
}

// columnList goes behind a table's name; empty for all columns.
func columnList(columns []string) string {
	if len(columns) == 0 {
		return ""
	}
	quoted := make([]string, len(columns))
	for i, column := range columns {
		quoted[i] = doubleQuoted(column)
	}
	return " (" + strings.Join(quoted, ", ") + ")"
}
