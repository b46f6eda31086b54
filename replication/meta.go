package replication

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// ColumnMeta is what only the catalog knows about a column, as it is when the
// server announces the table: at the first row of a session, and after a change.
type ColumnMeta struct {
	NotNull bool
	Default string // expression, as pg_get_expr prints it; empty: none
	Key     int    // position in the primary key, or else in a unique index, from 1; 0: none

	// The type, beneath any domains.
	Base     uint32
	BaseMod  int32
	TypeName string
	TypeKind byte   // pg_type.typtype: b, e (an enum), c, r, m, p
	Labels   string // of an enum or of an array's, joined with commas, in the order in which they were made

	Elem     uint32 // of an array; zero: none
	ElemName string
	ElemKind byte
}

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

// enrich adds the metadata that the table of an announced relation asks for.
func (d *Decoder) enrich(rel *Relation) error {
	if d.describe == nil {
		return nil
	}
	table, ok := d.expected[rel.OID]
	if !ok {
		if table, ok = d.byName[Table{Schema: rel.Namespace, Name: rel.Name}]; !ok {
			return nil
		}
	}
	if !d.wants[table].Meta {
		return nil
	}
	var err error
	rel.Meta, err = d.describe(rel)
	return err
}

// maxDescribe bounds a look at the catalog, during which the stream is not read and the
// server not answered.
const maxDescribe = 5 * time.Second

// describeTimeout leaves the server a half of its patience: it was last answered up to a
// quarter of it before the look began.
func (c *Config) describeTimeout() time.Duration { return min(maxDescribe, c.senderTimeout()/2) }

// describer reads the catalog for a stream, which is not able to while it copies.
// Its connection is made when it is first needed. The stream's goroutine owns it.
type describer struct {
	cfg    Config
	conn   *pgconn.PgConn
	labels map[uint32]string // of enums, as first seen: later ones are not in the schema of a running stream
}

func (s *describer) describe(rel *Relation) ([]ColumnMeta, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.describeTimeout())
	defer cancel()
	if s.conn != nil && s.conn.IsClosed() {
		s.conn = nil
	}
	if s.conn == nil {
		conn, err := connect(ctx, s.cfg, false)
		if err != nil {
			return nil, err
		}
		s.conn = conn
	}
	meta, err := readMeta(querier{ctx: ctx, conn: s.conn}, rel)
	if err != nil {
		s.close()
		return nil, err
	}
	if s.labels == nil {
		s.labels = make(map[uint32]string)
	}
	for i := range meta {
		m := &meta[i]
		if m.Labels == "" {
			continue
		}
		if first, ok := s.labels[m.Base]; ok {
			m.Labels = first
		} else {
			s.labels[m.Base] = m.Labels
		}
	}
	return meta, nil
}

func (s *describer) close() {
	if s != nil && s.conn != nil {
		closeQuietly(s.conn)
		s.conn = nil
	}
}
