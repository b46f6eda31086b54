package preflight

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// checkPublication looks at the publication and, through it, at every table.
func (c *checker) checkPublication() error {
	p, err := catalog.ReadPublication(c.q, c.server.ServerVersion, c.cfg.Publication)
	if err != nil {
		if unansweredError(err) {
			return err
		}
		c.fail("publication", catalog.PublicationMissing(c.q, c.server.ServerVersion, c.cfg, err))
		p = nil
	}
	if p != nil {
		if err := c.publicationShape(p); err != nil {
			return err
		}
	}
	for _, table := range c.cfg.Tables {
		checked, err := c.checkTable(p, table)
		if err != nil {
			return err
		}
		c.report.Tables = append(c.report.Tables, checked)
	}
	return nil
}

// unansweredError is true for what catalog.ReadPublication and its like could not ask.
func unansweredError(err error) bool {
	switch postgres.Reason(err) {
	case fault.ReasonPublicationMissing, fault.ReasonSlotMissing, fault.ReasonTableMissing, fault.ReasonConfiguration:
		return false
	}
	return unanswered(err)
}

func (c *checker) publicationShape(p *catalog.PublicationRow) error {
	if others := c.cfg.Unwanted(p.Others); len(others) > 0 {
		byDebezium, err := c.heldByDebezium()
		if err != nil {
			return err
		}
		const seen = "%s also publishes %s, which are read and skipped"
		if byDebezium {
			c.ok("publication", seen+"; it stays as it is, for Debezium holds the slot, and the way back to it needs it unaltered", postgres.PublicationSubject(p.Name), strings.Join(others, ", "))
		} else {
			c.warn("publication", p.Narrow(&c.cfg), seen, postgres.PublicationSubject(p.Name), strings.Join(others, ", "))
		}
	} else {
		c.ok("publication", "%s publishes inserts only", postgres.PublicationSubject(p.Name))
	}
	configured := c.cfg.Tables
	if !p.AllTables {
		children, err := p.ChildTables(c.q, configured)
		if err != nil {
			return err
		}
		configured = append(slices.Clone(configured), children...)
	}
	foreign := p.Foreign(configured)
	switch {
	case p.AllTables:
		c.warn("publication.tables", "make one with the outbox tables alone: `cdc-relay setup` with another postgres.publication",
			"%s is FOR ALL TABLES: the rows of %s are sent to the relay, which skips them", postgres.PublicationSubject(p.Name), wording.Count(len(foreign), "other table"))
	case len(foreign) > 0:
		c.warn("publication.tables", "take them out, or configure them",
			"%s has %s more than are configured (%s): their rows are skipped", postgres.PublicationSubject(p.Name), wording.Count(len(foreign), "table"), strings.Join(wording.Shorten(foreign), ", "))
	}
	return nil
}

// checkTable continues with what can be said without a publication when p is nil.
func (c *checker) checkTable(p *catalog.PublicationRow, table wal.Table) (CheckedTable, error) {
	checked := CheckedTable{Table: table}
	t, err := catalog.ReadTable(c.q, table)
	if err != nil {
		return checked, err
	}
	if t == nil {
		err := catalog.TableMissing(c.q, c.cfg, table)
		if postgres.Reason(err) != fault.ReasonTableMissing {
			return checked, err
		}
		c.fail("table", err)
		return checked, nil
	}
	if err := t.Decodable(table); err != nil {
		c.fail("table", err)
		return checked, nil
	}
	if err := c.checkNamesake(table); err != nil {
		return checked, err
	}
	shown := catalog.Membership{Publication: c.cfg.Publication}
	published := p != nil
	if p != nil {
		if err := p.Publishes(table, t); err != nil {
			c.fail("publication.tables", err)
			published = false
		}
		shown = p.Membership(table)
	}
	columns, err := catalog.ReadColumns(c.q, c.server.ServerVersion, t.OID, table, shown)
	if err != nil {
		return checked, err
	}
	relation := columns.Relation(t.OID, table)
	relation.Table = len(c.report.Tables)
	if c.cfg.WantsOf(relation.Table).Meta {
		if relation.Meta, err = catalog.ReadColumnMeta(c.q, relation); err != nil {
			return checked, err
		}
	}
	checked.Relation = relation
	if published {
		c.ok("publication.tables", "%s publishes the inserts of %s", postgres.PublicationSubject(p.Name), table)
	}
	for _, step := range []func(*catalog.TableRow, wal.Table, *CheckedTable) error{c.checkReadable, c.checkChildren, c.checkPartitions, c.checkIdentity, c.checkDiversions} {
		if err := step(t, table, &checked); err != nil {
			return checked, err
		}
	}
	return checked, c.checkColumns(p, published, relation, &checked)
}

// checkNamesake looks for a table that the application may write to in place of
// the configured one.
func (c *checker) checkNamesake(table wal.Table) error {
	similar, err := catalog.SimilarTables(c.q, table)
	if err != nil || len(similar) == 0 {
		return err
	}
	var others []string
	for _, t := range similar {
		if !slices.Contains(c.cfg.Tables, t) {
			others = append(others, t.String())
		}
	}
	if len(others) > 0 {
		c.warn("table", "unless the application writes to the configured one: in the configuration, put double quotes around a part that has upper case",
			"beside %s there is %s, whose name differs only in case", table, strings.Join(others, ", "))
	}
	return nil
}

// checkColumns compares the table with what the stream will have of it.
func (c *checker) checkColumns(p *catalog.PublicationRow, published bool, relation *wal.Relation, checked *CheckedTable) error {
	var shown catalog.Membership
	if p != nil {
		shown = p.Membership(checked.Table)
	}
	rows, err := c.q.All(fmt.Sprintf(`SELECT attname, attgenerated <> '' FROM pg_catalog.pg_attribute
		WHERE attrelid = %d AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, relation.OID))
	if err != nil {
		return err
	}
	for _, row := range rows {
		name := row[0].Text
		switch {
		case slices.ContainsFunc(relation.Columns, func(col wal.Column) bool { return col.Name == name }):
		case row[1].Text == "t":
			checked.Generated = append(checked.Generated, name)
		default:
			checked.Unlisted = append(checked.Unlisted, name)
		}
	}
	switch {
	case c.cfg.Shard.Divided():
		if published { // else its own finding says so
			c.checkFilter(p, relation)
		}
	case shown.Filter != "":
		whole := shown
		whole.Filter = ""
		c.warn("publication.row_filter", "unless that is meant: "+whole.Relist(checked.Table, shown.Columns),
			"%s has a row filter on %s: rows that fail it are never delivered", postgres.PublicationSubject(c.cfg.Publication), checked.Table)
	}
	if len(checked.Unlisted) > 0 {
		c.warn("publication.column_list", "unless that is meant: "+shown.Relist(checked.Table, nil),
			"%s leaves out %s of %s: %s", postgres.PublicationSubject(c.cfg.Publication), wording.Count(len(checked.Unlisted), "column"), checked.Table, strings.Join(checked.Unlisted, ", "))
	}
	return nil
}

// checkReadable reports whether the rows can be looked at, which run never does.
func (c *checker) checkReadable(t *catalog.TableRow, table wal.Table, checked *CheckedTable) error {
	row, err := c.q.One(fmt.Sprintf(`SELECT pg_catalog.has_schema_privilege(relnamespace, 'USAGE'), pg_catalog.has_table_privilege(oid, 'SELECT'),
		pg_catalog.row_security_active(oid) FROM pg_catalog.pg_class WHERE oid = %d`, t.OID))
	if err != nil {
		return err
	}
	var grants []string
	if !row.Bool(0) {
		grants = append(grants, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", wal.QuoteIdentifier(table.Schema), wal.QuoteIdentifier(c.user)))
	}
	if !row.Bool(1) {
		grants = append(grants, fmt.Sprintf("GRANT SELECT ON %s TO %s", table.SQL(), wal.QuoteIdentifier(c.user)))
	}
	switch {
	case len(grants) > 0:
		c.warn("table.select", "to have its rows checked: "+strings.Join(grants, "; ")+" (run works without)",
			"role %q may not read %s: its rows cannot be checked", c.user, table)
	case row.Bool(2):
		c.warn("table.select", "check as a role with BYPASSRLS, or as the table's owner",
			"row-level security of %s hides rows from role %q: this check does not see them, and the stream sends them", table, c.user)
	default:
		checked.Readable = true
	}
	return nil
}

// checkChildren looks for rows that are in the table for SELECT, and not for the stream.
func (c *checker) checkChildren(t *catalog.TableRow, table wal.Table, _ *CheckedTable) error {
	seen, err := t.Unsent(c.q, table, c.cfg.Tables)
	if err == nil && seen != "" {
		c.warn("table.children", catalog.AdviceUnsent, "%s", seen)
	}
	return err
}

// mutableName are columns that say what has become of a row.
var mutableName = regexp.MustCompile(`(?i)^(is|was|has)?_?(status|state|published|processed|archived|sent|done|delivered|dispatched|handled)`)

// checkPartitions looks for a partition key that an UPDATE changes. Such an
// update moves the row, which is a delete and an insert, and the insert is
// published: the event is sent twice.
func (c *checker) checkPartitions(t *catalog.TableRow, table wal.Table, _ *CheckedTable) error {
	if t.Kind != "p" {
		return nil
	}
	rows, err := c.q.All(fmt.Sprintf(`SELECT pg_catalog.pg_get_partkeydef(p.partrelid), a.attname, coalesce(ty.typname = 'bool', false), coalesce(ty.typtype = 'e', false),
			a.attnum = ANY (p.partattrs::int2[])
		FROM pg_catalog.pg_partition_tree(%d) tree
		JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = tree.relid
		JOIN pg_catalog.pg_attribute a ON a.attrelid = p.partrelid AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_catalog.pg_type ty ON ty.oid = a.atttypid ORDER BY tree.level, a.attnum`, t.OID))
	if err != nil {
		return err
	}
	suspicious := false
	said := make(map[string]bool)
	for _, row := range rows {
		key, column, isBool, isEnum, direct := row[0].Text, row[1].Text, row[2].Text == "t", row[3].Text == "t", row[4].Text == "t"
		if said[key+column] || !direct && !mentions(key, column) {
			continue
		}
		said[key+column] = true
		const next = "partition by a column that never changes, such as created_at; the relay cannot tell such a copy from a new row"
		switch {
		case isBool || mutableName.MatchString(column):
			suspicious = true
			c.add("table.partition_key", advice.Fail, next,
				"%s is partitioned by %s, and column %q looks like one that is updated: moving a row to another partition sends its event again", table, key, column)
		case isEnum:
			suspicious = true
			c.warn("table.partition_key", next, "%s is partitioned by %s: if the enum column %q is ever updated, the row's event is sent again", table, key, column)
		}
	}
	if !suspicious {
		c.ok("table.partition_key", "the partition key of %s does not look like one that is updated", table)
	}
	return c.checkLeaves(t, table)
}

// mentions reports whether a key expression has the column as a word.
func mentions(expression, column string) bool {
	return slices.Contains(strings.FieldsFunc(expression, func(r rune) bool {
		return r != '_' && r != '$' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r < 0x80
	}), column)
}

func (c *checker) checkLeaves(t *catalog.TableRow, table wal.Table) error {
	found, err := catalog.ReadUndecoded(c.q, t.OID)
	for _, p := range found {
		c.add("table", advice.Fail, "make it an ordinary table: its rows are not in the WAL", "partition %s of %s is %s", p.Name, table, p.Kind)
	}
	return err
}

// checkIdentity looks for the trap of a publication, ours or another, that
// makes the application's own statements fail.
func (c *checker) checkIdentity(t *catalog.TableRow, table wal.Table, _ *CheckedTable) error {
	const tree = `SELECT relid FROM pg_catalog.pg_partition_tree(%[1]d) UNION SELECT %[1]d`
	rows, err := c.q.All(fmt.Sprintf(`SELECT DISTINCT p.pubname, concat_ws(' and ', CASE WHEN p.pubupdate THEN 'UPDATE' END, CASE WHEN p.pubdelete THEN 'DELETE' END)
		FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_tables pt ON pt.pubname = p.pubname
		JOIN pg_catalog.pg_namespace n ON n.nspname = pt.schemaname JOIN pg_catalog.pg_class r ON r.relnamespace = n.oid AND r.relname = pt.tablename
		WHERE (p.pubupdate OR p.pubdelete) AND r.oid IN (`+tree+`) AND EXISTS (
			SELECT FROM pg_catalog.pg_class l WHERE l.oid IN (`+tree+`) AND l.relkind = 'r' AND (l.relreplident = 'n' OR l.relreplident = 'd'
				AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = l.oid AND i.indisprimary)))
		ORDER BY 1`, t.OID))
	if err != nil {
		return err
	}
	for _, row := range rows {
		c.add("table.replica_identity", advice.Fail, fmt.Sprintf("run: ALTER PUBLICATION %s SET (publish = 'insert'); or give the table a primary key", wal.QuoteIdentifier(row[0].Text)),
			"%s has no replica identity, and %s publishes %s: the application's own %s on it fails", table, postgres.PublicationSubject(row[0].Text), row[1].Text, row[1].Text)
	}
	if len(rows) == 0 {
		c.ok("table.replica_identity", "no publication makes updates or deletes of %s fail", table)
	}
	return nil
}

// checkDiversions lists what stands between the application's INSERT and the row.
func (c *checker) checkDiversions(t *catalog.TableRow, table wal.Table, _ *CheckedTable) error {
	// tgtype: 1 row, 2 before, 4 insert. ev_type 3 is INSERT.
	rows, err := c.q.All(fmt.Sprintf(`SELECT 'trigger', tgname, false FROM pg_catalog.pg_trigger
			WHERE tgrelid = %[1]d AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 7 = 7
		UNION ALL SELECT 'rule', rulename, is_instead FROM pg_catalog.pg_rewrite WHERE ev_class = %[1]d AND ev_type = '3' AND ev_enabled <> 'D' ORDER BY 1, 2`, t.OID))
	if err != nil {
		return err
	}
	for _, row := range rows {
		name := wal.QuoteIdentifier(row[1].Text)
		switch {
		case row[0].Text == "trigger" && row[1].Text == postgres.CutoverTrigger:
			c.ok("table.triggers", "%s has the trigger of a cutover, which marks new rows as published; drop it once no polling publisher is left, see %show-to/cut-over-from-polling.md", table, wording.Docs)
		case row[0].Text == "trigger":
			c.warn("table.triggers", "read its function: the event is the row as the trigger leaves it, and none when it returns NULL",
				"%s has the trigger %s before each insert, which may change or drop rows", table, name)
		case row[2].Text == "t":
			c.add("table.triggers", advice.Fail, fmt.Sprintf("run: DROP RULE %s ON %s; or configure the table that the rule writes to", name, table.SQL()),
				"rule %s does something else instead of an insert into %s: those rows never reach it", name, table)
		default:
			c.warn("table.triggers", "read it: it runs as part of each insert", "%s has the rule %s on insert", table, name)
		}
	}
	if len(rows) == 0 {
		c.ok("table.triggers", "no trigger or rule interferes with an insert into %s", table)
	}
	return nil
}
