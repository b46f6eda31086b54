package maintenance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Partitioned is what a server shows of the root of partitions.
type Partitioned struct {
	Ranges bool   // it is partitioned by ranges
	Key    string // the one column that it is partitioned by; empty: several, or an expression
	Owner  bool   // our role may make and remove partitions
	All    []Partition

	// Partman is the retention that pg_partman has for the table: after it partitions are removed,
	// delivered or not. PartmanIn is its table.
	Partman, PartmanIn string
}

// Partition is one of the first level.
type Partition struct {
	Table    wal.Table
	OID      uint32
	Divided  bool   // into further partitions
	Logged   bool   // its rows are in the WAL; false: it is unlogged, or a foreign table
	Default  bool   // has the rows that no other one has
	Bound    string // as the server prints it
	From, To string // of a range of one column; empty: it has no such end
	Past     bool   // it ends before the time that was asked for
	Ahead    bool   // it begins after now
}

// Partitions looks at the partitions of a table, if they are ranges of the column by. now is the
// present in the terms of that column, and age how long ago a partition has to have ended to be
// past, both as SQL.
func (s *Surveyor) Partitions(ctx context.Context, oid uint32, by, now, age string) (*Partitioned, error) {
	s.session.q.Ctx = ctx
	p, err := s.partitioned(oid)
	if err == nil && p.Ranges && p.Key == by {
		p.All, err = partitions(s.session.q, oid, 0, now, age)
	}
	if err == nil {
		p.Partman, p.PartmanIn, err = s.partman(oid)
	}
	return p, postgres.Classify("look at the partitions", err)
}

func (s *Surveyor) partitioned(oid uint32) (*Partitioned, error) {
	row, err := s.session.q.One(fmt.Sprintf(`SELECT p.partstrat = 'r', coalesce(a.attname, ''), pg_catalog.pg_has_role(c.relowner, 'USAGE')
		FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_class c ON c.oid = p.partrelid
		LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND p.partnatts = 1 AND a.attnum = p.partattrs[0] AND a.attnum > 0 WHERE c.oid = %d`, oid))
	if err != nil {
		return nil, err
	}
	return &Partitioned{Ranges: row.Bool(0), Key: row.Text(1), Owner: row.Bool(2)}, row.Err
}

var rangeBound = regexp.MustCompile(`^FOR VALUES FROM \((MINVALUE|'[^']*')\) TO \((MAXVALUE|'[^']*')\)$`)

// partitions reads those of a table, or the one with that OID. Those that end first come first.
func partitions(q postgres.Querier, oid, one uint32, now, age string) (all []Partition, err error) {
	only := ""
	if one != 0 {
		only = fmt.Sprintf(" AND c.oid = %d", one)
	}
	rows, err := q.All(fmt.Sprintf(`SELECT n.nspname, c.relname, c.oid, c.relkind = 'p', pg_catalog.pg_get_expr(c.relpartbound, c.oid),
			c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
		FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE i.inhparent = %d AND NOT i.inhdetachpending%s ORDER BY c.oid`, oid, only))
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		id, err := strconv.ParseUint(row[2].Text, 10, 32)
		if err != nil {
			return nil, err
		}
		p := Partition{Table: wal.Table{Schema: row[0].Text, Name: row[1].Text}, OID: uint32(id), Divided: row[3].Text == "t", Logged: row[5].Text == "t", Bound: row[4].Text, Default: row[4].Text == "DEFAULT"}
		if ends := rangeBound.FindStringSubmatch(p.Bound); ends != nil {
			p.From, p.To = end(ends[1]), end(ends[2])
		}
		all = append(all, p)
	}
	return inTime(q, all, now, age)
}

func end(text string) string {
	if text == "MINVALUE" || text == "MAXVALUE" {
		return ""
	}
	return strings.Trim(text, "'")
}

// inTime asks the server how the ranges lie, and sorts them by it.
func inTime(q postgres.Querier, all []Partition, now, age string) ([]Partition, error) {
	var values []string
	for i := range all {
		if !all[i].Divided && all[i].From+all[i].To != "" {
			values = append(values, fmt.Sprintf("(%d, %s, %s)", i, orNull(all[i].From), orNull(all[i].To)))
		}
	}
	if len(values) == 0 {
		return all, nil
	}
	rows, err := q.All(fmt.Sprintf(`SELECT i, coalesce(upper::timestamptz < (%[1]s - %[2]s)::timestamptz, false), coalesce(lower::timestamptz > (%[1]s)::timestamptz, false)
		FROM (VALUES %[3]s) ranges (i, lower, upper) ORDER BY upper::timestamptz NULLS LAST`, now, age, strings.Join(values, ", ")))
	if err != nil {
		return nil, err
	}
	sorted, taken := make([]Partition, 0, len(all)), make(map[int]bool)
	for _, row := range rows {
		i, err := strconv.Atoi(row[0].Text)
		if err != nil {
			return nil, err
		}
		all[i].Past, all[i].Ahead = row[1].Text == "t", row[2].Text == "t"
		sorted, taken[i] = append(sorted, all[i]), true
	}
	for i := range all {
		if !taken[i] {
			sorted = append(sorted, all[i])
		}
	}
	return sorted, nil
}

func orNull(text string) string {
	if text == "" {
		return "NULL"
	}
	return postgres.QuoteLiteral(text)
}

// partman reads the retention that pg_partman has for a table. It is empty if our role may not read it.
func (s *Surveyor) partman(oid uint32) (retention, in string, err error) {
	row, err := s.session.q.One(`SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = 'part_config' AND c.relkind = 'r' AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
			AND 2 = (SELECT count(*) FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname IN ('parent_table', 'retention')) ORDER BY 1 LIMIT 1`)
	if errors.Is(err, postgres.ErrNoRow) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	in = wal.Table{Schema: row.Text(0), Name: "part_config"}.SQL()
	row, err = s.session.q.One(fmt.Sprintf(`SELECT retention::text FROM %s p JOIN pg_catalog.pg_class c ON c.oid = %d
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE parent_table = n.nspname || '.' || c.relname AND retention IS NOT NULL`, in, oid))
	if errors.Is(err, postgres.ErrNoRow) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	return row.Text(0), in, nil
}

// Leaf is a table that holds rows of a partitioned one.
type Leaf struct {
	Table wal.Table
	OID   uint32
}

// Leaves are the tables that hold the rows of a partitioned one, whatever it is divided by.
func (s *Surveyor) Leaves(ctx context.Context, oid uint32) (all []Leaf, err error) {
	s.session.q.Ctx = ctx
	rows, err := s.session.q.All(fmt.Sprintf(`SELECT n.nspname, c.relname, c.oid FROM pg_catalog.pg_partition_tree(%d) t
		JOIN pg_catalog.pg_class c ON c.oid = t.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE t.isleaf AND c.relkind = 'r' ORDER BY c.oid`, oid))
	if err != nil {
		return nil, postgres.Classify("look at the partitions", err)
	}
	for _, row := range rows {
		id, err := strconv.ParseUint(row[2].Text, 10, 32)
		if err != nil {
			return nil, err
		}
		all = append(all, Leaf{wal.Table{Schema: row[0].Text, Name: row[1].Text}, uint32(id)})
	}
	return all, nil
}

// IsPartition reports whether a table is a partition of another one, at whatever level. Whoever drops or
// detaches one is not waited for.
func (s *Surveyor) IsPartition(ctx context.Context, root, table uint32) (bool, error) {
	s.session.q.Ctx = ctx
	row, err := s.session.q.One(fmt.Sprintf(`WITH RECURSIVE tree(oid) AS (SELECT %d::oid
			UNION ALL SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN tree t ON i.inhparent = t.oid WHERE NOT i.inhdetachpending)
		SELECT EXISTS (SELECT FROM tree WHERE oid = %d)`, root, table))
	if err != nil {
		return false, postgres.Classify("look at the partitions", err)
	}
	return row.Bool(0), row.Err
}

// Exists reports whether a table has a row that meets a condition.
func (s *Surveyor) Exists(ctx context.Context, table wal.Table, condition string) (bool, error) {
	s.session.q.Ctx = ctx
	rows, err := s.session.readOnly("", fmt.Sprintf("SELECT EXISTS (SELECT FROM ONLY %s WHERE %s)", table.SQL(), condition))
	if err != nil {
		return false, postgres.Classify("look for rows of table "+table.String(), err)
	}
	return string(rows[0][0]) == "t", nil
}
