// Command shapes writes outbox/shapes_gen.go: the router's presets, with the columns of their
// tables, as shapes that package outbox can fill. It runs in the root of the repository.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"regexp"
	"strings"

	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/preset"
)

const generated = "outbox/shapes_gen.go"

func main() {
	text, err := generate()
	if err == nil {
		err = os.WriteFile(generated, text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "write shapes:", err)
		os.Exit(1)
	}
}

// table is one of the migrations.
type table struct {
	rel     wal.Relation
	notNull map[string]bool
	filled  map[string]bool // by a default or a sequence
}

var (
	tableName = regexp.MustCompile(`CREATE TABLE :"schema"\.:"table" \(\n((?s:.*?))\n\);`)
	columnDef = regexp.MustCompile(`^ +("[^"]+"|[a-z_]+) +((?:timestamp(?:\(\d\))? with(?:out)? time zone|double precision|character varying|[a-z]+)(?:\(\d+\))?(?:\[\])?)(.*?),?$`)
)

// parse reads the columns of a migration, in which each has a line of its own.
func parse(sql string) (*table, error) {
	body := tableName.FindStringSubmatch(sql)
	if body == nil {
		return nil, fmt.Errorf("no table found in\n%s", sql)
	}
	t := &table{notNull: map[string]bool{}, filled: map[string]bool{}}
	for line := range strings.Lines(body[1]) {
		line = strings.TrimRight(line, "\n")
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "PRIMARY KEY") || strings.HasPrefix(trimmed, "UNIQUE") || strings.HasPrefix(trimmed, "--") {
			continue
		}
		m := columnDef.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("no column found in %q", line)
		}
		name, typ, rest := strings.Trim(m[1], `"`), m[2], m[3]
		switch typ {
		case "bigserial":
			typ, t.filled[name] = "bigint", true
		case "serial":
			typ, t.filled[name] = "integer", true
		}
		t.rel.Columns = append(t.rel.Columns, wal.Column{Name: name, TypeName: typ})
		t.notNull[name] = strings.Contains(rest, "NOT NULL") || strings.Contains(rest, "PRIMARY KEY")
		t.filled[name] = t.filled[name] || strings.Contains(rest, "DEFAULT") || strings.Contains(rest, "GENERATED")
	}
	t.rel.Namespace, t.rel.Name = "public", "outbox"
	return t, nil
}

// roles are those that a writer fills, with the fields of outbox.Shape.
var roles = []struct {
	role  preset.Role
	field string
}{
	{preset.RoleID, "ID"}, {preset.RoleKey, "Key"}, {preset.RoleRoute, "Route"}, {preset.RoleTopic, "Topic"}, {preset.RoleType, "Type"},
	{preset.RolePayload, "Payload"}, {preset.RoleHeaders, "Headers"}, {preset.RoleTrace, "Trace"},
}

// shape is the source of one function; why is why there is none.
func shape(name string) (source, why string, err error) {
	sql, err := migrations.Table(name, "public", "outbox")
	if err != nil {
		return "", "", err
	}
	sql = strings.NewReplacer(`"public"."outbox"`, `:"schema".:"table"`).Replace(sql)
	t, err := parse(sql)
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", name, err)
	}
	p := preset.ByName(name)
	if name == migrations.Polling {
		p = preset.ByName(migrations.DefaultPreset)
	}
	if p == nil {
		return "", "", fmt.Errorf("%s: the router has no such preset", name)
	}
	if p.Value != "" || p.Base64 || p.HeaderValues != "" || p.TablePrefix != "" || p.Regex != "" || p.Fallback != [preset.RoleCount]string{} {
		return "", "its rows are in a format of its own", nil
	}
	given := &preset.Given{Table: "public.outbox"}
	s, err := given.Resolve(p, &t.rel)
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", name, err)
	}
	// Who else sends the rows, or reads the table for another purpose, is told about the preset.
	for _, warning := range s.Warnings {
		if strings.HasPrefix(warning, "preset ") {
			return "", warning, nil
		}
	}
	return render(name, p, s, t)
}

func render(name string, p *preset.Preset, s *preset.Shape, t *table) (source, why string, err error) {
	var b strings.Builder
	fmt.Fprintf(&b, "\tPreset: %q,\n", p.Name)
	used := map[string]bool{}
	write := func(field, column string) {
		used[column] = true
		c := t.column(column)
		fmt.Fprintf(&b, "\t%s: Column{Name: %q, Type: %q", field, c.Name, c.TypeName)
		if !t.notNull[column] {
			b.WriteString(", Nullable: true")
		}
		if field == "ID" && t.filled[column] && c.TypeName != "uuid" {
			b.WriteString(", Generated: true")
		}
		b.WriteString("},\n")
	}
	for _, r := range roles {
		name := s.Columns[r.role]
		if name == "" {
			continue
		}
		if t.column(name) == nil {
			return "", "a role is a part of a column", nil
		}
		write(r.field, name)
	}
	for i := range p.Headers {
		if h := &p.Headers[i]; h.Name == "idempotency_key" {
			if column := h.ColumnIn(&t.rel); column != "" {
				write("IdempotencyKey", column)
			}
		}
	}
	var now []string
	for _, c := range t.rel.Columns {
		if used[c.Name] || !t.notNull[c.Name] || t.filled[c.Name] {
			continue
		}
		if !strings.HasPrefix(c.TypeName, "timestamp") {
			return "", "column " + c.Name + " is filled by the framework", nil
		}
		now = append(now, c.Name)
	}
	if len(now) > 0 {
		fmt.Fprintf(&b, "\tNow: %#v,\n", now)
	}
	if topic := topicOf(p, s); topic != "" {
		fmt.Fprintf(&b, "\tTopicTemplate: %q,\n", topic)
	}
	function := exported(name)
	return fmt.Sprintf("// %s is the table of `cdc-relay setup --create-table=%s`.\nfunc %s() Shape {\n\treturn Shape{\n%s\t}\n}\n", function, name, function, b.String()), "", nil
}

func (t *table) column(name string) *wal.Column {
	if i := column.Index(&t.rel, name); i >= 0 {
		return &t.rel.Columns[i]
	}
	return nil
}

// topicOf has the columns' names in place of the roles' names.
func topicOf(p *preset.Preset, s *preset.Shape) string {
	topic := p.Topic
	if p.TopicElse != "" && s.Columns[preset.RoleTopic] == "" {
		topic = p.TopicElse
	}
	return strings.NewReplacer(
		"${"+preset.RoutedByValue+"}", "${"+s.Columns[preset.RoleRoute]+"}",
		"${topic}", "${"+s.Columns[preset.RoleTopic]+"}",
		"${type}", "${"+s.Columns[preset.RoleType]+"}",
	).Replace(topic)
}

func exported(name string) string {
	var b strings.Builder
	for _, word := range strings.Split(name, "-") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

func generate() ([]byte, error) {
	var functions []string
	var names, left []string
	for _, name := range migrations.Presets() {
		source, why, err := shape(name)
		switch {
		case err != nil:
			return nil, err
		case why != "":
			left = append(left, fmt.Sprintf("//   - %s: %s", name, why))
		default:
			functions = append(functions, source)
			names = append(names, exported(name)+"()")
		}
	}
	var b bytes.Buffer
	b.WriteString("// Code generated by test/shapes from the router's presets. DO NOT EDIT.\n\npackage outbox\n\n")
	b.WriteString(strings.Join(functions, "\n"))
	b.WriteString("\n// Shapes are all of them. A writer does not fill:\n//\n" + strings.Join(left, "\n") + "\n")
	fmt.Fprintf(&b, "func Shapes() []Shape {\n\treturn []Shape{%s}\n}\n", strings.Join(names, ", "))
	return format.Source(b.Bytes())
}
