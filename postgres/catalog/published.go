package catalog

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/cdc-relay/cdc-relay/postgres"
)

// Fingerprint is short, and differs where what PublishedAs returned does.
func Fingerprint(published map[string]string) string {
	h := fnv.New64a()
	for _, name := range slices.Sorted(maps.Keys(published)) {
		fmt.Fprintf(h, "%q %q ", name, published[name])
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// PublishedAs returns, by publication, the rows of the catalog by which it has a table, each with its
// identity and its version (oid and xmin). The text differs after any change of the publication
// that concerns the table, also after one that was taken back, and, where a schema is published, after a
// move out of it and back: rows that were written in between may be in no stream. Publications that do
// not exist are absent.
func PublishedAs(q postgres.Querier, version int, table uint32, publications []string) (map[string]string, error) {
	rows, err := q.All(PublishedSQL(version, table, publications))
	if err != nil {
		return nil, err
	}
	return Published(rows), nil
}

// PublishedSQL is the statement of PublishedAs.
func PublishedSQL(version int, table uint32, publications []string) string {
	schema, schemas := "", ""
	if version >= 150000 { // before, there are no publications of schemas
		schema = fmt.Sprintf(`, n.oid, n.xmin, CASE WHEN n.oid IS NOT NULL THEN (SELECT pg_catalog.max(d.xmin::text::bigint) FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::regclass
			AND d.objid = %d AND d.objsubid = 0 AND d.refclassid = 'pg_catalog.pg_namespace'::regclass) END`, table) // written again when the table moves to another schema
		schemas = fmt.Sprintf(" LEFT JOIN pg_catalog.pg_publication_namespace n ON n.pnpubid = p.oid AND n.pnnspid = (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = %d)", table)
	}
	return fmt.Sprintf(`SELECT p.pubname, pg_catalog.concat_ws(' ', p.oid, p.xmin, r.oid, r.xmin%[3]s) FROM pg_catalog.pg_publication p
		LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid IN (SELECT %[1]d UNION SELECT relid FROM pg_catalog.pg_partition_ancestors(%[1]d))%[4]s
		WHERE p.pubname = ANY (%[2]s) ORDER BY 1, 2`, table, postgres.NamesSQL(publications), schema, schemas)
}

// Published is what PublishedAs returns, from the rows of PublishedSQL.
func Published(rows []postgres.Cells) map[string]string {
	found := make(map[string]string)
	for _, row := range rows {
		if before := found[row[0].Text]; before != "" {
			row[1].Text = before + ", " + row[1].Text
		}
		found[row[0].Text] = row[1].Text
	}
	return found
}
