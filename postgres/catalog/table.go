package catalog

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// NotNull is the SQL condition that a column (a, of pg_attribute) has no NULL. From 18 on a NOT NULL
// that is NOT VALID marks the column as well, and says nothing of the rows that were there before.
const NotNull = `(a.attnotnull AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint v WHERE v.conrelid = a.attrelid AND v.contype = 'n' AND NOT v.convalidated AND a.attnum = ANY (v.conkey)))`

// TableRow is a table in the catalog.
type TableRow struct {
	OID         uint32
	Kind        string // relkind
	persistence string // relpersistence
	partition   bool
	Children    bool      // an ordinary table that has, or had, others by INHERITS
	root        wal.Table // topmost ancestor of a partition
}

// Only goes before the table's name in a publication: without it the children
// would be in it too, whose rows carry their own names.
func (t *TableRow) Only() string {
	if t.Children {
		return "ONLY "
	}
	return ""
}

// ReadTable returns nil when there is no relation of that name.
func ReadTable(q postgres.Querier, table wal.Table) (*TableRow, error) {
	row, err := q.One(fmt.Sprintf(`SELECT c.oid, c.relkind, c.relpersistence, c.relispartition, coalesce(rn.nspname, ''), coalesce(rc.relname, ''),
			c.relkind = 'r' AND c.relhassubclass
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_catalog.pg_class rc ON c.relispartition AND rc.oid = pg_catalog.pg_partition_root(c.oid)
		LEFT JOIN pg_catalog.pg_namespace rn ON rn.oid = rc.relnamespace
		WHERE n.nspname = %s AND c.relname = %s`, postgres.QuoteLiteral(table.Schema), postgres.QuoteLiteral(table.Name)))
	if errors.Is(err, postgres.ErrNoRow) {
		return nil, nil
	}
	if err != nil {
		return nil, postgres.Classify("look at table "+table.String(), err)
	}
	t := &TableRow{
		OID: uint32(row.Int("oid", 0)), Kind: row.Text(1), persistence: row.Text(2), partition: row.Bool(3),
		root: wal.Table{Schema: row.Text(4), Name: row.Text(5)}, Children: row.Bool(6),
	}
	return t, row.Err
}

// Decodable refuses what never reaches a stream.
func (t *TableRow) Decodable(table wal.Table) error {
	var cause string
	switch {
	case t.Kind != "r" && t.Kind != "p":
		kinds := map[string]string{"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index", "c": "a composite type"}
		cause = "it is " + kinds[t.Kind] + ", whose rows are not in the WAL under its own name"
		if kinds[t.Kind] == "" {
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
		hint = "run: ALTER TABLE " + table.SQL() + " SET LOGGED"
	}
	return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonTableChanged, Op: "look at", Subject: "table " + table.String(), Err: errors.New(cause), Hint: hint}
}

// Undecoded is a partition whose rows never reach a stream.
type Undecoded struct{ Name, Kind string } // the name as SQL

// ReadUndecoded reads those of a table.
func ReadUndecoded(q postgres.Querier, table uint32) (all []Undecoded, err error) {
	rows, err := q.All(fmt.Sprintf(`SELECT pg_catalog.format('%%I.%%I', n.nspname, l.relname), CASE l.relkind WHEN 'f' THEN 'a foreign table' ELSE 'UNLOGGED' END
		FROM pg_catalog.pg_partition_tree(%d) tree JOIN pg_catalog.pg_class l ON l.oid = tree.relid JOIN pg_catalog.pg_namespace n ON n.oid = l.relnamespace
		WHERE tree.isleaf AND (l.relkind = 'f' OR l.relpersistence <> 'p') ORDER BY 1`, table))
	for _, row := range rows {
		all = append(all, Undecoded{row[0].Text, row[1].Text})
	}
	return all, err
}

// RefuseUndecoded refuses a table that has such partitions.
func RefuseUndecoded(q postgres.Querier, table wal.Table, oid uint32) error {
	found, err := ReadUndecoded(q, oid)
	if err != nil || len(found) == 0 {
		return postgres.Classify("look at the partitions of table "+table.String(), err)
	}
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonTableChanged, Op: "look at", Subject: "table " + table.String(),
		Err: fmt.Errorf("partition %s is %s: its rows are not in the WAL", found[0].Name, found[0].Kind), Hint: "make it an ordinary table, or detach it",
	}
}

// readDecodable is ReadTable for a table that has to be there and to reach a stream.
func readDecodable(q postgres.Querier, cfg postgres.Config, table wal.Table) (*TableRow, error) {
	t, err := ReadTable(q, table)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, TableMissing(q, cfg, table)
	}
	return t, t.Decodable(table)
}

// InspectTable checks one configured table and reads its shape as the stream
// will announce it: attnum order, no dropped column, generated ones and the rest
// of a column list only as published.
func InspectTable(q postgres.Querier, version int, cfg postgres.Config, p *PublicationRow, table wal.Table) (*wal.Relation, []string, error) {
	t, err := readDecodable(q, cfg, table)
	if err != nil {
		return nil, nil, err
	}
	if err := p.Publishes(table, t); err != nil {
		return nil, nil, err
	}
	shown := p.Membership(table)
	shown.Only = t.Only()
	columns, err := ReadColumns(q, version, t.OID, table, shown)
	if err != nil {
		return nil, nil, err
	}
	relation := columns.Relation(t.OID, table)
	var warnings []string
	if cfg.Shard.Divided() {
		if err := p.Filtered(cfg, version, relation); err != nil {
			return nil, nil, err
		}
	} else if filter := p.Tables[table].Filter; filter != "" {
		warnings = append(warnings, fmt.Sprintf("%s has a row filter on %s: rows that fail it are never delivered", postgres.PublicationSubject(p.Name), table))
	}
	if len(columns.published) < columns.ordinary {
		warnings = append(warnings, fmt.Sprintf("%s publishes %d of the %d columns of %s", postgres.PublicationSubject(p.Name), len(columns.published), columns.ordinary, table))
	}
	return relation, warnings, nil
}

// TableColumns is what the catalog says about the columns of one table.
type TableColumns struct {
	published []wal.Column
	hidden    map[string]string // as in Relation.Hidden
	ordinary  int               // columns that are not generated, dropped ones aside
}

// Relation is the table as the stream announces it.
func (c *TableColumns) Relation(oid uint32, table wal.Table) *wal.Relation {
	return &wal.Relation{OID: oid, Namespace: table.Schema, Name: table.Name, Columns: c.published, Hidden: c.hidden}
}

// ReadColumns reads the columns in attnum order.
func ReadColumns(q postgres.Querier, version int, oid uint32, table wal.Table, shown Membership) (*TableColumns, error) {
	// The stream names a domain by its base type, so this does too.
	rows, err := q.All(fmt.Sprintf(`SELECT a.attname, a.atttypid, a.atttypmod, (
			WITH RECURSIVE base AS (
				SELECT typname, typtype, typbasetype, typcategory FROM pg_catalog.pg_type WHERE oid = a.atttypid
				UNION ALL
				SELECT t.typname, t.typtype, t.typbasetype, t.typcategory FROM pg_catalog.pg_type t JOIN base ON base.typtype = 'd' AND t.oid = base.typbasetype
			) SELECT CASE typcategory WHEN 'A' THEN 'a' ELSE typtype::text END || typname FROM base WHERE typtype <> 'd'), a.attgenerated
		FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = %d AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, oid))
	if err != nil {
		return nil, postgres.Classify("read the columns of table "+table.String(), err)
	}
	c := &TableColumns{hidden: make(map[string]string)}
	for _, r := range rows {
		name, generated := r[0].Text, r[4].Text
		if generated == "" {
			c.ordinary++
		}
		if why := shown.hides(version, table, name, generated); why != "" {
			c.hidden[name] = why
			continue
		}
		typeOID, err := strconv.ParseUint(r[1].Text, 10, 32)
		if err != nil {
			return nil, &fault.Error{Kind: fault.KindProtocol, Op: "read the columns of table " + table.String(), Err: err}
		}
		typeMod, err := strconv.ParseInt(r[2].Text, 10, 32)
		if err != nil {
			return nil, &fault.Error{Kind: fault.KindProtocol, Op: "read the columns of table " + table.String(), Err: err}
		}
		column := wal.Column{Name: name, Type: uint32(typeOID), TypeMod: int32(typeMod)}
		if kind := r[3].Text; kind != "" {
			column.TypeName, column.Composite, column.Array = kind[1:], kind[0] == 'c', kind[0] == 'a'
		}
		c.published = append(c.published, column)
	}
	return c, nil
}
