package marks

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// unindexed is how many rows a table without a fitting index may have: each pass reads it whole.
const unindexed = 100_000

func (p *Policy) refuse(reason, hint, cause string, args ...any) error {
	return &fault.Error{Kind: fault.KindRefused, Reason: reason, Op: "look at", Subject: "table " + p.Table.String(), Err: fmt.Errorf(cause, args...), Hint: hint}
}

// unfit refuses what is no table of rows that a slot has.
func (p *Policy) unfit(s *maintenance.Survey) error {
	switch {
	case s.Kind == "p":
		return p.refuse(fault.ReasonConfiguration, "mark the rows of ordinary tables", "it is partitioned, and an update of each row would cost more than the partitions save")
	case s.Kind != "r":
		return p.refuse(fault.ReasonConfiguration, "name an ordinary table", "it is a view, or no table")
	case !s.Permanent:
		return p.refuse(fault.ReasonConfiguration, "run: ALTER TABLE "+p.Table.SQL()+" SET LOGGED", "it is unlogged, and no slot has its rows")
	}
	return nil
}

// refusals are all reasons that the table gives for setting no mark. index leads to the rows
// without one; empty: none does.
func (p *Policy) refusals(s *maintenance.Survey, u *maintenance.Updates, set setting, index string) (all []error) {
	if sql := p.grants(s, u); len(sql) > 0 {
		all = append(all, p.refuse(fault.ReasonPermission, "run: "+strings.Join(sql, "; "), "role %q lacks a right", s.Role))
	}
	if u.Key {
		all = append(all, p.mistake("column", "name another column", "column %q of table %s is part of its primary key", p.Column, p.Table))
	}
	if u.PartitionKey {
		all = append(all, p.mistake("column", "name another column", "column %q of table %s is part of a partition key: a mark would move the row, and send its event again", p.Column, p.Table))
	}
	if len(u.NoIdentity) > 0 {
		all = append(all, p.refuse(fault.ReasonReplicaIdentity, "have the publication send inserts alone (publish = 'insert'), or run: ALTER TABLE "+p.Table.SQL()+" REPLICA IDENTITY FULL",
			"publication %s sends updates, and the table has no replica identity: PostgreSQL refuses an update", strings.Join(u.NoIdentity, ", ")))
	}
	if len(s.Unpublished) > 0 {
		all = append(all, p.refuse(fault.ReasonTableUnpublished, "add it again, and send the rows that were written meanwhile",
			"publication %s does not publish its inserts: rows that are written now are never sent", strings.Join(s.Unpublished, ", ")))
	}
	if len(s.Filters) > 0 {
		all = append(all, p.refuse(fault.ReasonTableUnpublished, "send all rows, and leave the filter to consumers",
			"publication %s has a row filter on it: rows that fail it are never sent, and nothing tells them from the others", strings.Join(s.Filters, ", ")))
	}
	if index == "" && s.Rows > unindexed {
		all = append(all, p.refuse(fault.ReasonNoIndex, "run: "+p.indexSQL(set, s.Columns), "it has some %d rows and no index that leads to rows without a mark: every pass would read all of it", s.Rows))
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
