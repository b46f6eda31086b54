package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/javaregex"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// captured is a table that the connector captures.
type captured struct {
	table   wal.Table
	columns []string // nil: nobody looked
	offered []option // in place of columns that the EventRouter looks for and the table lacks
}

var literalTable = regexp.MustCompile(`^([A-Za-z0-9_$]+)(?:\.|\\\.|\[\.\])([A-Za-z0-9_$]+)$`)

var bareTable = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

// readTables resolves the table patterns against the catalog. Without a catalog it accepts only
// plain names.
func (c *conversion) readTables() error {
	if c.options.Catalog != nil {
		return c.matchTables()
	}
	list, ok := c.take("table.include.list")
	if !ok {
		if old, ok := c.get("table.whitelist"); ok {
			list = old
		} else {
			text := "the connector captures every table"
			for _, key := range []string{"table.exclude.list", "table.blacklist", "schema.include.list", "schema.exclude.list"} {
				if _, ok := c.get(key); ok {
					text = "the connector captures every table that " + key + " leaves"
				}
			}
			return &Error{File: c.in.file, Line: 1, Key: "table.include.list",
				Message: "is missing: " + text + "; name the outbox table, or give --postgres-url so that import can look"}
		}
	}
	for _, pattern := range javaregex.Split(list.value) {
		m := literalTable.FindStringSubmatch(pattern)
		if refs := references(pattern); len(refs) > 0 {
			return &Error{File: list.file, Line: list.line, Column: list.column, Key: list.original,
				Message: fmt.Sprintf("holds a reference that only Connect can resolve (%s): write the tables' names", refs[0].plain())}
		}
		if bareTable.MatchString(pattern) {
			return &Error{File: list.file, Line: list.line, Column: list.column, Key: list.original,
				Message: fmt.Sprintf("%s has no schema, and Debezium compares schema.table, so it captures nothing; is public.%s meant?", shown(list.key, pattern), pattern)}
		}
		if m == nil {
			return &Error{File: list.file, Line: list.line, Column: list.column, Key: list.original,
				Message: fmt.Sprintf("%s is a pattern; give --postgres-url so that import can see which tables it takes", shown(list.key, pattern))}
		}
		table := wal.Table{Schema: strings.ToLower(m[1]), Name: strings.ToLower(m[2])}
		if !slices.ContainsFunc(c.tables, func(t captured) bool { return t.table == table }) {
			c.tables = append(c.tables, captured{table: table})
		}
		if strings.ToLower(pattern) != pattern {
			c.missing(pattern, ToDo, "Debezium ignores case here, and the relay does not: %s is meant unless the table was made with quotes; then write %q.%q", table, m[1], m[2])
		}
	}
	if len(c.tables) == 0 {
		return &Error{File: list.file, Line: list.line, Column: list.column, Key: list.original, Message: "names no table"}
	}
	c.remark(list, Carried, "outbox[].table")
	c.otherLists()
	return nil
}

// otherLists says what happened to the lists that need a look at the database.
func (c *conversion) otherLists() {
	for _, key := range []string{"schema.include.list", "schema.exclude.list", "table.exclude.list"} {
		if it, ok := c.get(key); ok {
			fate, text := Implied, "resolved into outbox[].table"
			if c.options.Catalog == nil {
				fate, text = NotNeeded, "table.include.list names the tables"
			}
			c.remark(it, fate, "%s", text)
		}
	}
}

func (c *conversion) matchTables() error {
	var lists [4][]*regexp.Regexp
	for i, key := range []string{"table.include.list", "schema.include.list", "table.exclude.list", "schema.exclude.list"} {
		it, ok := c.get(key)
		if !ok {
			continue
		}
		var err error
		if lists[i], err = patterns(it); err != nil {
			return err
		}
	}
	var found []Table
	for _, t := range c.options.Catalog {
		name := t.Schema + "." + t.Name
		switch {
		case lists[0] != nil && !matches(lists[0], name),
			lists[1] != nil && !matches(lists[1], t.Schema),
			matches(lists[2], name), matches(lists[3], t.Schema):
		default:
			found = append(found, t)
		}
	}
	found = c.partitions(found)
	for _, t := range found {
		c.tables = append(c.tables, captured{table: wal.Table{Schema: t.Schema, Name: t.Name}, columns: t.Columns})
	}
	list, listed := c.get("table.include.list")
	if len(c.tables) == 0 {
		return &Error{File: c.in.file, Line: list.line, Column: list.column, Key: "table.include.list", Message: "no table of the database matches; correct the list, or the database in --postgres-url"}
	}
	if listed {
		c.remark(list, Carried, "outbox[].table: %s", c.tableNames())
	} else {
		c.missing("table.include.list", Offered, "is not given, so the connector captures %s; leave out those that are no outbox", c.tableNames())
	}
	c.otherLists()
	return nil
}

// partitions returns one name for the rows of a partitioned table: its own with
// publish.via.partition.root, otherwise those of its partitions.
func (c *conversion) partitions(found []Table) []Table {
	viaRoot := c.flag("publish.via.partition.root")
	roots, leaves := map[string]bool{}, map[string]bool{}
	for _, t := range found {
		if t.Partitioned {
			roots[t.Schema+"."+t.Name] = true
		} else if t.Root != "" {
			leaves[t.Root] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(found), func(t Table) bool {
		if viaRoot {
			return t.Root != "" && roots[t.Root]
		}
		return t.Partitioned && leaves[t.Schema+"."+t.Name]
	})
}

func (c *conversion) tableNames() string {
	var names []string
	for _, t := range c.tables {
		names = append(names, t.table.String())
	}
	return strings.Join(names, ", ")
}

func patterns(it item) ([]*regexp.Regexp, error) {
	list := []*regexp.Regexp{}
	for _, pattern := range javaregex.Split(it.value) {
		re, err := regexp.Compile(`(?i)\A(?:` + pattern + `)\z`)
		if err != nil {
			return nil, &Error{File: it.file, Line: it.line, Column: it.column, Key: it.original,
				Message: fmt.Sprintf("%s is no regular expression that import understands; write the tables' names", shown(it.key, pattern))}
		}
		list = append(list, re)
	}
	return list, nil
}

func matches(list []*regexp.Regexp, name string) bool {
	return slices.ContainsFunc(list, func(re *regexp.Regexp) bool { return re.MatchString(name) })
}

func (t captured) has(column string) bool { return slices.Contains(t.columns, column) }
