package router

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// tableName is the table as one would write it in the configuration.
func tableName(rel *wal.Relation) string {
	return wal.Table{Schema: rel.Namespace, Name: rel.Name}.String()
}

// splitPointer takes `column#/pointer` apart.
func splitPointer(spec string) (column, pointer string) {
	if i := strings.Index(spec, "#/"); i > 0 {
		return spec[:i], spec[i+1:]
	}
	return spec, ""
}

func columnIndex(rel *wal.Relation, name string) int {
	return slices.IndexFunc(rel.Columns, func(c wal.Column) bool { return c.Name == name })
}

// fewColumns are named also where one of them is likely to be meant.
const fewColumns = 12

func noColumn(rel *wal.Relation, name string) error {
	if why := rel.Hidden[name]; why != "" {
		return &columnError{column: name, err: hiddenColumn(rel, name)}
	}
	near := ""
	names := make([]string, len(rel.Columns))
	for i, c := range rel.Columns {
		names[i] = c.Name
		if c.Name != name && normal(c.Name) == normal(name) {
			near = c.Name
		}
	}
	if near == "" {
		near, _ = wording.Nearest(name, names)
	}
	hint := "; it has " + columnList(rel)
	if near != "" && near != name {
		hint = fmt.Sprintf(" (did you mean %q?)", near) + hint
		if len(names) > fewColumns {
			hint = fmt.Sprintf(": did you mean %q?", near)
		}
	}
	return &columnError{column: name, err: fmt.Errorf("table %s has no column %q%s", tableName(rel), name, hint)}
}

// hiddenColumn tells why the stream lacks a column that the table has.
func hiddenColumn(rel *wal.Relation, name string) error {
	why, way, _ := strings.Cut(rel.Hidden[name], "; ")
	return advise(fmt.Errorf("column %q of table %s %s", name, tableName(rel), why), way)
}

// hidden are the columns that would go by one of names, were they published.
func hidden(names []string, exact bool, rel *wal.Relation) []string {
	var found []string
	for _, column := range slices.Sorted(maps.Keys(rel.Hidden)) {
		if slices.Contains(names, column) || !exact && slices.Contains(names, normal(column)) {
			found = append(found, column)
		}
	}
	return found
}

func columnList(rel *wal.Relation) string {
	if len(rel.Columns) == 0 {
		return "no columns"
	}
	names := make([]string, len(rel.Columns))
	for i, c := range rel.Columns {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// MessageBody is the column of a logical message.
const MessageBody = "body"

// isMessages tells logical messages from a table, which has an OID.
func isMessages(rel *wal.Relation) bool { return rel.OID == 0 && rel.Namespace == "message" }

// normal makes spellings of one name equal: event_type, eventType, EventType.
func normal(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", ""))
}

func has(rel *wal.Relation, spec string) bool {
	name, _ := splitPointer(spec)
	return columnIndex(rel, name) >= 0
}
