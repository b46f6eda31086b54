package catalog

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// ReadColumnMeta reads the catalog for rel's columns. One that the table no longer has
// under that name is nullable and has no default; its type is looked up all the same.
func ReadColumnMeta(q postgres.Querier, rel *wal.Relation) ([]wal.ColumnMeta, error) {
	if len(rel.Columns) == 0 {
		return []wal.ColumnMeta{}, nil
	}
	columns := make([]string, len(rel.Columns))
	for i, c := range rel.Columns {
		columns[i] = fmt.Sprintf("(%d, %s::name, %d::oid, %d)", i, postgres.QuoteLiteral(c.Name), c.Type, c.TypeMod)
	}
	rows, err := q.All(fmt.Sprintf(`SELECT v.i, coalesce(a.attnotnull, false) OR coalesce(a.attnum IS NOT NULL AND t.typtype = 'd' AND t.typnotnull, false),
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
		return nil, postgres.Classify("read the columns of table "+rel.Qualified(), err)
	}
	if len(rows) != len(rel.Columns) {
		return nil, &fault.Error{Kind: fault.KindProtocol, Op: "read the columns of table " + rel.Qualified(), Err: fmt.Errorf("%d rows for %d columns", len(rows), len(rel.Columns))}
	}
	meta := make([]wal.ColumnMeta, len(rows))
	for i, cells := range rows {
		row := postgres.Row{Cells: cells}
		meta[i] = wal.ColumnMeta{
			NotNull: row.Bool(1), Default: row.Text(2), Key: row.Int("the key", 3),
			Base: uint32(row.Int("atttypid", 4)), BaseMod: int32(row.Int("atttypmod", 5)), TypeName: row.Text(6), TypeKind: row.Text(7)[0],
			Labels: row.Text(8), Elem: uint32(row.Int("typelem", 9)), ElemName: row.Text(10), ElemKind: row.Text(11)[0],
		}
		if row.Err != nil {
			return nil, row.Err
		}
	}
	return meta, nil
}
