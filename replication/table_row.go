package replication

import (
	"errors"
	"fmt"
	"strconv"
)

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
