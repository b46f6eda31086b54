package retention

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

// age finds the column that says how old a row is.
func (p *Policy) age(s *maintenance.Survey) (maintenance.Column, error) {
	i := slices.IndexFunc(s.Columns, func(c maintenance.Column) bool { return c.Name == p.By })
	if i >= 0 && dated(s.Columns[i]) {
		return s.Columns[i], nil
	}
	var others []string
	for _, c := range s.Columns {
		if dated(c) {
			others = append(others, c.Name)
		}
	}
	hint := "the table has no column of such a type: give it one"
	if len(others) > 0 {
		hint = "allowed: " + strings.Join(others, ", ")
	}
	if i < 0 {
		return maintenance.Column{}, p.Mistake("by", hint, "table %s has no column %q", p.Table, p.By)
	}
	return maintenance.Column{}, p.Mistake("by", hint, "column %q of table %s is %s, and has to be a timestamp", p.By, p.Table, s.Columns[i].Type)
}

// refusals are all reasons that the table gives for doing nothing. index leads to the rows that
// are due; empty without one.
func (p *Policy) refusals(s *maintenance.Survey, index string) (all []error) {
	if sql := p.grants(s); len(sql) > 0 {
		all = append(all, p.Refuse(fault.ReasonPermission, "run: "+strings.Join(sql, "; "), "role %q lacks a right", s.Role))
	}
	if len(s.NoIdentity) > 0 {
		all = append(all, p.Refuse(fault.ReasonReplicaIdentity, "have the publication send inserts alone (publish = 'insert'), or run: ALTER TABLE "+p.Table.SQL()+" REPLICA IDENTITY FULL",
			"publication %s sends deletes, and the table has no replica identity: PostgreSQL refuses a delete", strings.Join(s.NoIdentity, ", ")))
	}
	if len(s.Cascades) > 0 {
		all = append(all, p.Refuse(fault.ReasonConfiguration, "drop the constraint, or make it without ON DELETE CASCADE",
			"foreign key %s has each row that goes take others with it, delivered or not", strings.Join(s.Cascades, ", ")))
	}
	all = append(all, p.Unsent(s)...)
	if p.Then == Archive {
		all = append(all, p.archiveRefusals(s)...)
	}
	if index == "" && !p.Blocks && s.Rows > upkeep.Unindexed {
		all = append(all, p.Refuse(fault.ReasonNoIndex, "run: "+p.indexSQL()+"; or set "+p.Path+".scan: blocks", "it has some %d rows and no index on %q: every pass would read all of it", s.Rows, p.By))
	}
	return all
}

// grants are the statements for the rights that are missing. UPDATE on a column is no need: it
// lets rows be left out that somebody has locked.
func (p *Policy) grants(s *maintenance.Survey) (sql []string) {
	role := wal.QuoteIdentifier(s.Role)
	if !s.MaySelect {
		sql = append(sql, fmt.Sprintf("GRANT SELECT ON %s TO %s", p.Table.SQL(), role))
	}
	if !s.MayDelete {
		sql = append(sql, fmt.Sprintf("GRANT DELETE ON %s TO %s", p.Table.SQL(), role))
	}
	if p.Then == Archive && s.Archive != nil && s.Archive.Exists && !s.Archive.MayInsert {
		sql = append(sql, fmt.Sprintf("GRANT INSERT ON %s TO %s", p.Archive.SQL(), role))
	}
	return sql
}

func (p *Policy) indexSQL() string {
	return fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s)", p.Table.SQL(), wal.QuoteIdentifier(p.By))
}

func (p *Policy) archiveSQL() string {
	return fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS)", p.Archive.SQL(), p.Table.SQL())
}

func (p *Policy) archiveRefusals(s *maintenance.Survey) (all []error) {
	a := s.Archive
	add := func(hint, cause string, args ...any) {
		all = append(all, &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonTableChanged, Op: "look at", Subject: "archive table " + p.Archive.String(), Err: fmt.Errorf(cause, args...), Hint: hint,
		})
	}
	switch {
	case !a.Exists:
		add("run: "+p.archiveSQL(), "it does not exist")
		return all
	case a.Below:
		add("archive into a table of its own", "it is the table itself, or one of the two inherits from the other")
		return all
	case a.Kind != "r" && a.Kind != "p":
		add("archive into an ordinary table", "it is a view, or no table")
	case !a.Permanent:
		add("run: ALTER TABLE "+p.Archive.SQL()+" SET LOGGED", "it is unlogged: a crash of the server empties it")
	case len(a.Unlogged) > 0:
		add("set it LOGGED, or take it out", "partition %s of it is unlogged or a foreign table: a crash of the server empties it, or its rows are in another database", strings.Join(a.Unlogged, ", "))
	}
	if len(a.Publications) > 0 {
		add("take it out of the publication, or archive into another table", "publication %s has it, or a partition of it: its rows would be sent again", strings.Join(a.Publications, ", "))
	}
	if _, err := archived(s); err != nil {
		add("run: ALTER TABLE "+p.Archive.SQL()+" …, so that it has every column of the table by name and type", "%v", err)
	}
	return all
}

// archived are the columns that an archive gets.
func archived(s *maintenance.Survey) (columns []string, err error) {
	var lacks []string
	for _, c := range s.Columns {
		i := slices.IndexFunc(s.Archive.Columns, func(other maintenance.Column) bool { return other.Name == c.Name })
		switch {
		case i < 0:
			lacks = append(lacks, fmt.Sprintf("no column %q", c.Name))
		case s.Archive.Columns[i].Type != c.Type:
			lacks = append(lacks, fmt.Sprintf("column %q as %s, and the table as %s", c.Name, s.Archive.Columns[i].Type, c.Type))
		case !s.Archive.Columns[i].Generated:
			columns = append(columns, c.Name)
		case !c.Generated:
			lacks = append(lacks, fmt.Sprintf("column %q generated, and the table does not", c.Name))
		}
	}
	if len(lacks) > 0 {
		return nil, errors.New("it has " + strings.Join(lacks, "; "))
	}
	return columns, nil
}
