package column

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/jsontext"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/wording"
)

// TableName is the table as one would write it in the configuration.
func TableName(rel *wal.Relation) string {
	return wal.Table{Schema: rel.Namespace, Name: rel.Name}.String()
}

// SplitPointer takes `column#/pointer` apart.
func SplitPointer(spec string) (column, pointer string) {
	if i := strings.Index(spec, "#/"); i > 0 {
		return spec[:i], spec[i+1:]
	}
	return spec, ""
}

// CheckSpec looks at the pointer of `column#/pointer`.
func CheckSpec(spec string) error {
	if _, pointer := SplitPointer(spec); pointer != "" {
		_, err := jsontext.ParsePointer(pointer)
		return err
	}
	return nil
}

// Index is where a relation has the column, or -1.
func Index(rel *wal.Relation, name string) int {
	return slices.IndexFunc(rel.Columns, func(c wal.Column) bool { return c.Name == name })
}

// fewColumns are named also where one of them is likely to be meant.
const fewColumns = 12

// Missing is the error of a column that a relation does not have; it names the one that was likely meant.
func Missing(rel *wal.Relation, name string) error {
	if why := rel.Hidden[name]; why != "" {
		return &record.ColumnError{Column: name, Err: HiddenColumn(rel, name)}
	}
	near := ""
	names := make([]string, len(rel.Columns))
	for i, c := range rel.Columns {
		names[i] = c.Name
		if c.Name != name && Normal(c.Name) == Normal(name) {
			near = c.Name
		}
	}
	if near == "" {
		near, _ = wording.Nearest(name, names)
	}
	hint := "; it has " + List(rel)
	if near != "" && near != name {
		hint = fmt.Sprintf(" (did you mean %q?)", near) + hint
		if len(names) > fewColumns {
			hint = fmt.Sprintf(": did you mean %q?", near)
		}
	}
	return &record.ColumnError{Column: name, Err: fmt.Errorf("table %s has no column %q%s", TableName(rel), name, hint)}
}

// HiddenColumn explains why the stream lacks a column that the table has.
func HiddenColumn(rel *wal.Relation, name string) error {
	why, way, _ := strings.Cut(rel.Hidden[name], "; ")
	return advice.Give(fmt.Errorf("column %q of table %s %s", name, TableName(rel), why), way)
}

// Hidden are the columns that would go by one of names, were they published.
func Hidden(names []string, exact bool, rel *wal.Relation) []string {
	var found []string
	for _, column := range slices.Sorted(maps.Keys(rel.Hidden)) {
		if slices.Contains(names, column) || !exact && slices.Contains(names, Normal(column)) {
			found = append(found, column)
		}
	}
	return found
}

// List names the columns of a relation for an error.
func List(rel *wal.Relation) string {
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

// Normal makes spellings of one name equal: event_type, eventType, EventType.
func Normal(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", ""))
}

// Has reports whether a relation has the column of `column#/pointer`.
func Has(rel *wal.Relation, spec string) bool {
	name, _ := SplitPointer(spec)
	return Index(rel, name) >= 0
}

// CheckBody looks at a message's body once, so that whatever points into it finds
// a JSON object.
func CheckBody(row *wal.Row) error {
	for _, v := range row.Values {
		text := TrimBlank(v.Data)
		what := jsontext.ErrNotJSON
		if len(text) > 0 && text[0] != '{' {
			what = jsontext.ErrNotObject
		}
		if len(text) == 0 || text[0] != '{' || !json.Valid(text) {
			return record.Reject(fault.ReasonMapping, MessageBody, "the message body %v; send a JSON object with the members id, aggregateType, aggregateId, type and payload, or say in columns where they are", what)
		}
	}
	return nil
}
