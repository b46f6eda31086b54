package maintenance

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/postgres"
)

// Updates is what a server shows of one column that is to be set.
type Updates struct {
	MayUpdate    bool
	Key          bool     // part of the primary key
	PartitionKey bool     // of the table, or of one above it
	Triggers     []string // that setting it fires
	Publications []string // that publish updates of the table
	NoIdentity   []string // publications for which an update fails
	Indexed      []string // indexes that have the column, or ask for it: no update of it is HOT
	Indexes      []Index  // by which rows may be found that are not set yet
}

// Index is one that covers a part of the table, or begins with the column.
type Index struct {
	Name    string
	Columns []string // of which rows may be in order, as SQL
}

// Updates reads the catalog.
func (s *Surveyor) Updates(ctx context.Context, oid uint32, column string) (*Updates, error) {
	s.session.q.Ctx = ctx
	u, err := s.updates(oid, column)
	return u, postgres.Classify("look at what setting a column does", err)
}

func (s *Surveyor) updates(oid uint32, column string) (*Updates, error) {
	name := postgres.QuoteLiteral(column)
	row, err := s.session.q.One(fmt.Sprintf(`WITH RECURSIVE above(relid) AS (SELECT %[1]d::oid UNION SELECT i.inhparent FROM pg_catalog.pg_inherits i JOIN above a ON a.relid = i.inhrelid)
		SELECT has_column_privilege(%[1]d::oid, %[2]s, 'UPDATE'),
			EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
				WHERE i.indrelid = %[1]d AND i.indisprimary AND a.attname = %[2]s),
			EXISTS (SELECT FROM pg_catalog.pg_partitioned_table p JOIN above b ON b.relid = p.partrelid JOIN pg_catalog.pg_attribute a ON a.attrelid = p.partrelid
				WHERE a.attname = %[2]s AND (a.attnum = ANY (p.partattrs)
					OR EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = p.partrelid AND d.refobjid = p.partrelid AND d.refobjsubid = a.attnum AND d.deptype = 'i')))`, oid, name))
	if err != nil {
		return nil, err
	}
	u := &Updates{MayUpdate: row.Bool(0), Key: row.Bool(1), PartitionKey: row.Bool(2)}
	for _, list := range []struct {
		into *[]string
		sql  string
	}{
		{&u.Triggers, `SELECT t.tgname FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_attribute a ON a.attrelid = t.tgrelid AND a.attname = %[2]s
			WHERE t.tgrelid = %[1]d AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 16 <> 0 AND (t.tgattr = ''::int2vector OR a.attnum = ANY (t.tgattr)) ORDER BY 1`},
		{&u.Publications, `SELECT DISTINCT p.pubname ` + publishes + ` AND p.pubupdate ORDER BY 1`},
		{&u.NoIdentity, `SELECT DISTINCT p.pubname ` + publishes + ` AND p.pubupdate AND ` + noIdentity + ` ORDER BY 1`},
		{&u.Indexed, `SELECT DISTINCT c.relname FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_index i ON i.indexrelid = d.objid JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
			JOIN pg_catalog.pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
			WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refobjid = %[1]d AND i.indrelid = %[1]d AND a.attname = %[2]s ORDER BY 1`},
	} {
		if *list.into, err = s.list(strings.NewReplacer("%[1]d", fmt.Sprint(oid), "%[2]s", name).Replace(list.sql)); err != nil {
			return nil, err
		}
	}
	u.Indexes, err = s.indexes(oid, name)
	return u, err
}

// indexes are those that may lead to rows which are not set yet. The first two columns of an index
// are what rows can be in the order of.
func (s *Surveyor) indexes(oid uint32, column string) (all []Index, err error) {
	rows, err := s.session.q.All(fmt.Sprintf(`SELECT c.relname, pg_catalog.pg_get_indexdef(i.indexrelid, 1, true), CASE WHEN i.indnkeyatts > 1 THEN pg_catalog.pg_get_indexdef(i.indexrelid, 2, true) END
		FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_am am ON am.oid = c.relam
		WHERE i.indrelid = %[1]d AND i.indisvalid AND am.amname = 'btree' AND (i.indpred IS NOT NULL
			OR i.indkey[0] = (SELECT a.attnum FROM pg_catalog.pg_attribute a WHERE a.attrelid = %[1]d AND a.attname = %[2]s))
		ORDER BY i.indpred IS NULL, 1`, oid, column))
	for _, row := range rows {
		index := Index{Name: row[0].Text, Columns: []string{row[1].Text}}
		if !row[2].Null {
			index.Columns = append(index.Columns, row[2].Text)
		}
		all = append(all, index)
	}
	return all, err
}
