package replication

import (
	"context"
)

// Listed is a table of the database as the catalog has it.
type Listed struct {
	Table
	Columns     []string // in their order
	Partitioned bool     // its rows lie in partitions
	Root        Table    // of a partition: its topmost ancestor
}

// List reads every table of the database that is not the server's own. Any role
// may do that.
func List(ctx context.Context, cfg Config) ([]Listed, error) {
	conn, err := connect(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(conn)
	q := querier{ctx: ctx, conn: conn}
	rows, err := q.all(`SELECT n.nspname, c.relname, c.relkind = 'p', coalesce(rn.nspname, ''), coalesce(rc.relname, ''), a.attname
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_catalog.pg_class rc ON c.relispartition AND rc.oid = pg_catalog.pg_partition_root(c.oid)
		LEFT JOIN pg_catalog.pg_namespace rn ON rn.oid = rc.relnamespace
		LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
		ORDER BY n.nspname, c.relname, a.attnum`)
	if err != nil {
		return nil, classify("list the tables", err)
	}
	var list []Listed
	for _, r := range rows {
		table := Table{Schema: r[0].text, Name: r[1].text}
		if len(list) == 0 || list[len(list)-1].Table != table {
			list = append(list, Listed{Table: table, Partitioned: r[2].text == "t", Root: Table{Schema: r[3].text, Name: r[4].text}, Columns: []string{}})
		}
		if !r[5].null {
			last := &list[len(list)-1]
			last.Columns = append(last.Columns, r[5].text)
		}
	}
	return list, nil
}
