package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// PublicationRow is a publication with every table that it names or implies.
type PublicationRow struct {
	Name      string
	OID       string
	Version   string // another one after each ALTER PUBLICATION but of the tables
	Owner     string // OID
	Insert    bool
	Others    []string // further operations that it publishes
	ViaRoot   bool
	AllTables bool
	Tables    map[wal.Table]Membership
}

// Membership is how the publication shows one table.
type Membership struct {
	Publication string
	Filter      string   // row filter, or empty
	Columns     []string // names; nil when the server is too old to say, which means all
	alone       bool     // the publication has no other table
	Only        string   // TableRow.Only, where that was looked at
}

// Membership is how the publication has a table.
func (p *PublicationRow) Membership(table wal.Table) Membership {
	m := p.Tables[table]
	m.Publication, m.alone = p.Name, len(p.Tables) == 1
	return m
}

// ReadPublication fails with ReasonPublicationMissing when there is none. It
// reads what any role may read.
func ReadPublication(q postgres.Querier, version int, name string) (*PublicationRow, error) {
	op := "look at " + postgres.PublicationSubject(name)
	row, err := q.One(fmt.Sprintf(`SELECT oid, pubinsert, pubviaroot, puballtables,
			concat_ws(', ', CASE WHEN pubupdate THEN 'update' END, CASE WHEN pubdelete THEN 'delete' END, CASE WHEN pubtruncate THEN 'truncate' END), xmin, pubowner
		FROM pg_catalog.pg_publication WHERE pubname = %s`, postgres.QuoteLiteral(name)))
	if errors.Is(err, postgres.ErrNoRow) {
		return nil, &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonPublicationMissing, Op: "look at", Subject: postgres.PublicationSubject(name),
			Err: errors.New("the publication does not exist"), Hint: postgres.HintSetup,
		}
	}
	if err != nil {
		return nil, postgres.Classify(op, err)
	}
	p := &PublicationRow{
		Name: name, OID: row.Text(0), Version: row.Text(5), Owner: row.Text(6), Insert: row.Bool(1), ViaRoot: row.Bool(2), AllTables: row.Bool(3), Tables: make(map[wal.Table]Membership),
	}
	if row.Text(4) != "" {
		p.Others = strings.Split(row.Text(4), ", ")
	}
	filter, columns := `''`, `NULL::text[]`
	if version >= 150000 {
		filter, columns = `coalesce(rowfilter, '')`, `attnames::text[]`
	}
	// One line for each column: no array to take apart.
	rows, err := q.All(fmt.Sprintf(`SELECT schemaname, tablename, f, c FROM
			(SELECT schemaname, tablename, %s AS f, %s AS cs FROM pg_catalog.pg_publication_tables WHERE pubname = %s) t
			LEFT JOIN LATERAL unnest(cs) WITH ORDINALITY u(c, n) ON true ORDER BY 1, 2, n`, filter, columns, postgres.QuoteLiteral(name)))
	if err != nil {
		return nil, postgres.Classify(op, err)
	}
	for _, r := range rows {
		table := wal.Table{Schema: r[0].Text, Name: r[1].Text}
		shown := p.Tables[table]
		shown.Filter = r[2].Text
		if !r[3].Null {
			shown.Columns = append(shown.Columns, r[3].Text)
		}
		p.Tables[table] = shown
	}
	return p, nil
}

// Warnings are about what the publication has beyond the configured tables.
func (p *PublicationRow) Warnings(cfg postgres.Config) []string {
	var warnings []string
	if others := cfg.Unwanted(p.Others); len(others) > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"%s also publishes %s, which are skipped; without a replica identity they make the application's own statements fail; %s",
			postgres.PublicationSubject(p.Name), strings.Join(others, ", "), p.Narrow(&cfg)))
	}
	if foreign := p.Foreign(cfg.Tables); len(foreign) > 0 {
		warnings = append(warnings, fmt.Sprintf("%s has %s more than are configured (%s): their rows are skipped and counted",
			postgres.PublicationSubject(p.Name), wording.Count(len(foreign), "table"), strings.Join(wording.Shorten(foreign), ", ")))
	}
	return warnings
}

// Narrow is the advice against operations that nobody asked for. With debezium options
// the publication may be one that Debezium made, which is not for us to alter.
func (p *PublicationRow) Narrow(cfg *postgres.Config) string {
	run := fmt.Sprintf("run: ALTER PUBLICATION %s SET (publish = '%s')", wal.QuoteIdentifier(p.Name), cfg.Published())
	if len(cfg.Wants) == 0 {
		return run
	}
	return "if Debezium created it, leave it: the way back needs it; if `cdc-relay setup` created it, " + run
}

// Foreign lists the publication's tables that are not configured. With a root
// that is configured its partitions are not shown, so they do not count.
func (p *PublicationRow) Foreign(configured []wal.Table) []string {
	var foreign []string
	for table := range p.Tables {
		if !slices.Contains(configured, table) {
			foreign = append(foreign, table.String())
		}
	}
	slices.Sort(foreign)
	return foreign
}

// Publishes reports whether inserts into the table reach the stream under its own
// name, and if not, which statement makes them.
func (p *PublicationRow) Publishes(table wal.Table, t *TableRow) error {
	refuse := func(cause, hint string) error {
		return &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonTableUnpublished, Op: "look at", Subject: postgres.PublicationSubject(p.Name),
			Err: errors.New(cause), Hint: hint,
		}
	}
	if !p.Insert {
		kept := strings.Join(append([]string{"insert"}, p.Others...), ", ")
		return refuse("it does not publish inserts", fmt.Sprintf("run: ALTER PUBLICATION %s SET (publish = '%s')", wal.QuoteIdentifier(p.Name), kept))
	}
	if _, ok := p.Tables[table]; ok {
		return nil
	}
	if t.Kind == "p" && !p.ViaRoot {
		// The leaves may be in it, and then rows carry the leaves' names.
		return refuse(fmt.Sprintf("it does not publish the partitioned table %s under its own name", table),
			fmt.Sprintf("run: ALTER PUBLICATION %s SET (publish_via_partition_root = true)%s", wal.QuoteIdentifier(p.Name), p.addHint(table)))
	}
	if _, root := p.Tables[t.root]; root && t.partition {
		return refuse(fmt.Sprintf("it publishes the rows of partition %s as those of %s", table, t.root), fmt.Sprintf("configure the table %s", t.root))
	}
	return refuse(fmt.Sprintf("it does not have the table %s", table),
		fmt.Sprintf("run: ALTER PUBLICATION %s ADD TABLE %s%s", wal.QuoteIdentifier(p.Name), t.Only(), table.SQL()))
}

func (p *PublicationRow) addHint(table wal.Table) string {
	if p.AllTables || len(p.Tables) > 0 {
		return ""
	}
	return fmt.Sprintf("; ALTER PUBLICATION %s ADD TABLE %s", wal.QuoteIdentifier(p.Name), table.SQL())
}

// hides explains why the stream lacks a column, to be read after the column's name;
// empty when it has it.
func (m Membership) hides(version int, table wal.Table, column, generated string) string {
	listed := m.Columns == nil || slices.Contains(m.Columns, column)
	switch {
	// Before 18 the view lists generated columns of some tables, but no stream
	// has them.
	case generated != "" && version < 180000:
		return "is generated, which this server does not publish; write it as an ordinary column"
	case generated == "v":
		return "is generated and virtual, which no server publishes; write it as an ordinary column"
	case generated != "" && (m.Columns == nil || !listed):
		return fmt.Sprintf("is generated, which publication %s does not send; run: ALTER PUBLICATION %s SET (publish_generated_columns = stored); or write it as an ordinary column", m.Publication, wal.QuoteIdentifier(m.Publication))
	case !listed:
		return fmt.Sprintf("is not in the column list of publication %s; run: %s", m.Publication, m.Relist(table, append(slices.Clone(m.Columns), column)))
	}
	return ""
}

// missing warns of operations that a table asks for and the publication does not send.
func (p *PublicationRow) missing(w wal.Wants, table wal.Table) []string {
	lacks := slices.DeleteFunc(w.Operations(), func(op string) bool { return slices.Contains(p.Others, op) })
	if len(lacks) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s does not publish %s, which the mapping of table %s would look at: such changes are not seen",
		postgres.PublicationSubject(p.Name), strings.Join(lacks, " and "), table)}
}

// Relist is the statement that publishes a table with these columns and leaves the
// publication's other tables, and the row filter, as they are.
func (m Membership) Relist(table wal.Table, columns []string) string {
	entry := m.Only + table.SQL() + ColumnList(columns)
	if m.Filter != "" {
		entry += " WHERE (" + m.Filter + ")"
	}
	name := wal.QuoteIdentifier(m.Publication)
	if m.alone {
		return fmt.Sprintf("ALTER PUBLICATION %s SET TABLE %s", name, entry)
	}
	return fmt.Sprintf("BEGIN; ALTER PUBLICATION %s DROP TABLE %s%s; ALTER PUBLICATION %s ADD TABLE %s; COMMIT", name, m.Only, table.SQL(), name, entry)
}

// ColumnList goes after a table's name; empty for all columns.
func ColumnList(columns []string) string {
	if len(columns) == 0 {
		return ""
	}
	quoted := make([]string, len(columns))
	for i, column := range columns {
		quoted[i] = wal.QuoteIdentifier(column)
	}
	return " (" + strings.Join(quoted, ", ") + ")"
}
