package marks

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

// refusals are all reasons that the table gives for setting no mark. index leads to the rows
// without one; empty: none does.
func (p *Policy) refusals(s *maintenance.Survey, u *maintenance.Updates, set setting, index string) (all []error) {
	if sql := p.grants(s, u); len(sql) > 0 {
		all = append(all, p.Refuse(fault.ReasonPermission, "run: "+strings.Join(sql, "; "), "role %q lacks a right", s.Role))
	}
	if u.Key {
		all = append(all, p.Mistake("column", "name another column", "column %q of table %s is part of its primary key", p.Column, p.Table))
	}
	if u.PartitionKey {
		all = append(all, p.Mistake("column", "name another column", "column %q of table %s is part of a partition key: a mark would move the row, and send its event again", p.Column, p.Table))
	}
	if len(u.NoIdentity) > 0 {
		all = append(all, p.Refuse(fault.ReasonReplicaIdentity, "have the publication send inserts alone (publish = 'insert'), or run: ALTER TABLE "+p.Table.SQL()+" REPLICA IDENTITY FULL",
			"publication %s sends updates, and the table has no replica identity: PostgreSQL refuses an update", strings.Join(u.NoIdentity, ", ")))
	}
	all = append(all, p.Unsent(s)...)
	if index == "" && s.Rows > upkeep.Unindexed {
		all = append(all, p.Refuse(fault.ReasonNoIndex, "run: "+p.indexSQL(set, s.Columns), "it has some %d rows and no index that leads to rows without a mark: every pass would read all of it", s.Rows))
	}
	return all
}

func (p *Policy) grants(s *maintenance.Survey, u *maintenance.Updates) (sql []string) {
	role := wal.QuoteIdentifier(s.Role)
	if !s.MaySelect {
		sql = append(sql, fmt.Sprintf("GRANT SELECT ON %s TO %s", p.Table.SQL(), role))
	}
	if !u.MayUpdate {
		sql = append(sql, fmt.Sprintf("GRANT UPDATE (%s) ON %s TO %s", wal.QuoteIdentifier(p.Column), p.Table.SQL(), role))
	}
	return sql
}

// indexSQL makes an index that is as small as the rows without a mark are few.
func (p *Policy) indexSQL(set setting, columns []maintenance.Column) string {
	return fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s) WHERE %s", p.Table.SQL(), wal.QuoteIdentifier(written(columns, p.Column)), set.unmarked)
}

// written is the column that says when a row was written, or else the first one.
func written(columns []maintenance.Column, besides string) string {
	for _, c := range columns {
		if c.Name != besides && strings.HasPrefix(c.Type, "timestamp") && strings.HasPrefix(c.Name, "created") {
			return c.Name
		}
	}
	return columns[0].Name
}
