package catalog

import (
	"fmt"
	"strconv"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Part is a table that may have rows which are in no stream: one that was asked about, or a
// partition of it.
type Part struct {
	Table wal.Table
	OID   uint32

	// Attached: another transaction than the one that made it has attached it.
	Attached bool

	// Before is the SQL condition of rows that were written before it, or a partition above it, was
	// attached, by the transaction that did. Empty: it was not attached.
	Before string

	// Rewritten: it has another file than it was made with, and its entry in the catalog was changed.
	// SET UNLOGGED and SET LOGGED do both, and the server refuses them for a table that a publication
	// names itself. A partition may have been named only afterwards; that the table was, is seen in how
	// the publication has it.
	Rewritten bool
}

// Unstreamed are those of a table and its partitions to which something was done, by transactions from
// ended on, that no publication shows. What a table has before it is attached, and while it is
// unlogged, is in no stream.
func Unstreamed(q postgres.Querier, table uint32, ended uint64, publications []string) (all []Part, err error) {
	// Unlike pg_partition_tree this locks no partition.
	rows, err := q.All(fmt.Sprintf(`WITH RECURSIVE tree(oid, attached, before) AS (SELECT %[1]d::oid, false, ''
			UNION ALL SELECT i.inhrelid, since AND i.xmin <> a.xmin, pg_catalog.concat_ws(' OR ', nullif(t.before, ''), CASE WHEN since THEN pg_catalog.format('xmin = %%L AND cmin::text::bigint < %%s', i.xmin, i.cmin) END)
			FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid JOIN pg_catalog.pg_attribute a ON a.attrelid = i.inhrelid AND a.attnum = -1, %[6]s, LATERAL (SELECT %[3]s >= %[2]d AS since) s),
		parts AS (SELECT n.nspname, c.relname, c.oid, t.attached, c.relkind = 'r' AND c.relfilenode <> c.oid AND %[4]s >= %[2]d AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel r
				JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = c.oid AND p.pubname = ANY (%[5]s) AND (c.oid = %[1]d OR %[7]s < %[2]d)) AS rewritten, CASE WHEN c.relkind = 'r' THEN t.before ELSE '' END AS before
			FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace, %[6]s WHERE c.relispartition OR c.oid = %[1]d)
		SELECT * FROM parts WHERE attached OR rewritten OR before <> '' ORDER BY 1, 2`,
		table, ended, newestXID("i.xmin"), newestXID("c.xmin"), postgres.NamesSQL(publications), nowXID, newestXID("r.xmin")))
	for _, row := range rows {
		oid, err := strconv.ParseUint(row[2].Text, 10, 32)
		if err != nil {
			return nil, err
		}
		all = append(all, Part{
			Table: wal.Table{Schema: row[0].Text, Name: row[1].Text}, OID: uint32(oid), Attached: row[3].Text == "t", Rewritten: row[4].Text == "t", Before: row[5].Text,
		})
	}
	return all, err
}
