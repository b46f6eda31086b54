package catalog

import (
	"context"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// ListedTable is a table of the database as the catalog has it.
type ListedTable struct {
	wal.Table
	Columns     []string  // in their order
	Partitioned bool      // its rows lie in partitions
	Root        wal.Table // of a partition: its topmost ancestor
}

// ListTables reads every table of the database that is not the server's own. Any role
// may do that.
func ListTables(ctx context.Context, cfg postgres.Config) ([]ListedTable, error) {
	conn, err := postgres.Connect(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	defer postgres.CloseQuietly(conn)
	q := postgres.Querier{Ctx: ctx, Conn: conn}
	rows, err := q.All(`SELECT n.nspname, c.relname, c.relkind = 'p', coalesce(rn.nspname, ''), coalesce(rc.relname, ''), a.attname
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_catalog.pg_class rc ON c.relispartition AND rc.oid = pg_catalog.pg_partition_root(c.oid)
		LEFT JOIN pg_catalog.pg_namespace rn ON rn.oid = rc.relnamespace
		LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
		ORDER BY n.nspname, c.relname, a.attnum`)
	if err != nil {
		return nil, postgres.Classify("list the tables", err)
	}
	var list []ListedTable
	for _, r := range rows {
		table := wal.Table{Schema: r[0].Text, Name: r[1].Text}
		if len(list) == 0 || list[len(list)-1].Table != table {
			list = append(list, ListedTable{Table: table, Partitioned: r[2].Text == "t", Root: wal.Table{Schema: r[3].Text, Name: r[4].Text}, Columns: []string{}})
		}
		if !r[5].Null {
			last := &list[len(list)-1]
			last.Columns = append(last.Columns, r[5].Text)
		}
	}
	return list, nil
}
