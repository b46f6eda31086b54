package replication

import (
	"fmt"
	"strings"
)

// readMeta reads the catalog for rel's columns. One that the table no longer has
// under that name is nullable and has no default; its type is looked up all the same.
func readMeta(q querier, rel *Relation) ([]ColumnMeta, error) {
	if len(rel.Columns) == 0 {
		return []ColumnMeta{}, nil
	}
	columns := make([]string, len(rel.Columns))
	for i, c := range rel.Columns {
		columns[i] = fmt.Sprintf("(%d, %s::name, %d::oid, %d)", i, singleQuoted(c.Name), c.Type, c.TypeMod)
	}
	rows, err := q.all(fmt.Sprintf(`SELECT v.i, coalesce(a.attnotnull, false) OR coalesce(a.attnum IS NOT NULL AND t.typtype = 'd' AND t.typnotnull, false),
			coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), ''),
			coalesce((SELECT k.n FROM (
				SELECT i.indkey, i.indnkeyatts FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
				WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indexprs IS NULL ORDER BY i.indisprimary DESC, c.relname LIMIT 1
			) x, unnest(x.indkey::int2[]) WITH ORDINALITY k(attnum, n) WHERE k.attnum = a.attnum AND k.n <= x.indnkeyatts), 0),
			coalesce(b.oid, v.type), coalesce(b.mod, v.mod), coalesce(b.typname, ''), coalesce(b.typtype, 'b'),
			coalesce((SELECT string_agg(enumlabel, ',' ORDER BY oid) FROM pg_catalog.pg_enum WHERE enumtypid IN (b.oid, e.oid)), ''),
			coalesce(e.oid, 0), coalesce(e.typname, ''), coalesce(e.typtype, 'b')
		FROM (VALUES %s) v(i, name, type, mod)
		LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = %d AND a.attname = v.name AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_catalog.pg_type t ON t.oid = v.type
		LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		LEFT JOIN LATERAL (
			WITH RECURSIVE base AS (
				SELECT y.oid, v.mod, y.typname, y.typtype, y.typbasetype, y.typtypmod, y.typcategory, y.typelem
				FROM pg_catalog.pg_type y WHERE y.oid = v.type
				UNION ALL
				SELECT y.oid, base.typtypmod, y.typname, y.typtype, y.typbasetype, y.typtypmod, y.typcategory, y.typelem
				FROM pg_catalog.pg_type y JOIN base ON base.typtype = 'd' AND y.oid = base.typbasetype
			) SELECT * FROM base WHERE typtype <> 'd'
		) b ON true
		LEFT JOIN pg_catalog.pg_type e ON b.typcategory = 'A' AND e.oid = b.typelem
		ORDER BY v.i`, strings.Join(columns, ", "), rel.OID))
	if err != nil {
		return nil, classify("read the columns of table "+rel.qualified(), err)
	}
	if len(rows) != len(rel.Columns) {
		return nil, &Error{Kind: KindProtocol, Op: "read the columns of table " + rel.qualified(), Err: fmt.Errorf("%d rows for %d columns", len(rows), len(rel.Columns))}
	}
	meta := make([]ColumnMeta, len(rows))
	for i, cells := range rows {
		row := catalogRow{cells: cells}
		meta[i] = ColumnMeta{
			NotNull: row.bool(1), Default: row.text(2), Key: row.int("the key", 3),
			Base: uint32(row.int("atttypid", 4)), BaseMod: int32(row.int("atttypmod", 5)), TypeName: row.text(6), TypeKind: row.text(7)[0],
			Labels: row.text(8), Elem: uint32(row.int("typelem", 9)), ElemName: row.text(10), ElemKind: row.text(11)[0],
		}
		if row.err != nil {
			return nil, row.err
		}
	}
	return meta, nil
}
