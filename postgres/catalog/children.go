package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// below walks from every table to all that inherit from it, at any depth:
// partitions, and children by INHERITS.
const below = `WITH RECURSIVE below(root, relid) AS (
		SELECT inhparent, inhrelid FROM pg_catalog.pg_inherits
		UNION SELECT b.root, i.inhrelid FROM below b JOIN pg_catalog.pg_inherits i ON i.inhparent = b.relid) `

// ChildTables are the publication's tables that inherit from tables: not strangers, but
// their rows carry names that nobody configured.
func (p *PublicationRow) ChildTables(q postgres.Querier, tables []wal.Table) ([]wal.Table, error) {
	rows, err := q.All(below + fmt.Sprintf(`SELECT DISTINCT pt.schemaname, pt.tablename, rn.nspname, r.relname
		FROM pg_catalog.pg_publication_tables pt
		JOIN pg_catalog.pg_namespace n ON n.nspname = pt.schemaname
		JOIN pg_catalog.pg_class l ON l.relnamespace = n.oid AND l.relname = pt.tablename
		JOIN below b ON b.relid = l.oid
		JOIN pg_catalog.pg_class r ON r.oid = b.root JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
		WHERE pt.pubname = %s`, postgres.QuoteLiteral(p.Name)))
	if err != nil {
		return nil, err
	}
	var children []wal.Table
	for _, row := range rows {
		if slices.Contains(tables, wal.Table{Schema: row[2].Text, Name: row[3].Text}) {
			children = append(children, wal.Table{Schema: row[0].Text, Name: row[1].Text})
		}
	}
	return children, nil
}

// Unsent says which children by INHERITS of a table are not configured: their
// rows are never sent. It is empty when there are none.
func (t *TableRow) Unsent(q postgres.Querier, table wal.Table, configured []wal.Table) (string, error) {
	if !t.Children {
		return "", nil
	}
	rows, err := q.All(below + fmt.Sprintf(`SELECT n.nspname, c.relname FROM below b
		JOIN pg_catalog.pg_class c ON c.oid = b.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE b.root = %d ORDER BY 1, 2`, t.OID))
	if err != nil {
		return "", err
	}
	var names []string
	for _, row := range rows {
		if child := (wal.Table{Schema: row[0].Text, Name: row[1].Text}); !slices.Contains(configured, child) {
			names = append(names, child.String())
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return fmt.Sprintf("%s has child tables (%s): a row that is written to one of them carries the child's name and is not sent", table, strings.Join(wording.Shorten(names), ", ")), nil
}

const AdviceUnsent = "configure each of them under outbox, or have their rows written to the table itself"
