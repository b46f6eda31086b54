// Package migrations holds the SQL that a relay's database needs: outbox tables
// by preset, the publication, and the role to connect as.
//
// The files are SQL with psql variables (`:"table"` is a quoted name), so they
// run under psql as they are (psql -v schema=public -v table=outbox -f FILE); the functions here fill the variables in, names
// quoted, and return text. Nothing here connects to a server or alters what
// exists: a statement for something that is there already fails.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed */0001_outbox.up.sql */0001_outbox.down.sql publication.sql role.sql read.sql
var files embed.FS

// DefaultPreset is our own table.
const DefaultPreset = "outbox"

// Name is a table as the catalog has it: no quotes, no folding.
type Name struct{ Schema, Table string }

// Presets lists the table shapes there is SQL for.
func Presets() []string {
	var names []string
	entries, _ := fs.ReadDir(files, ".")
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// Table is the SQL that makes an outbox table with its indexes and comments. The
// empty preset is DefaultPreset.
func Table(preset, schema, table string) (string, error) {
	return migration(preset, "up", Name{schema, table})
}

// DropTable is the SQL that takes back Table, events included.
func DropTable(preset, schema, table string) (string, error) {
	return migration(preset, "down", Name{schema, table})
}

// Publication is the SQL that publishes the inserts of the tables. viaRoot is
// for partitioned tables: their rows then arrive under the name of the root.
func Publication(name string, tables []Name, viaRoot bool) (string, error) {
	if len(tables) == 0 {
		return "", fmt.Errorf("render publication %q: no table", name)
	}
	values := map[string]string{"publication": name, "via_root": strconv.FormatBool(viaRoot)}
	return render("publication.sql", values, tables)
}

// Role is the SQL that makes the role the relay connects as. It may stream; with
// read it may also look at the rows of those tables.
func Role(name, database string, read []Name) (string, error) {
	values := map[string]string{"role": name, "database": database}
	text, err := render("role.sql", values, nil)
	if err != nil || len(read) == 0 {
		return text, err
	}
	grants, err := render("read.sql", values, read)
	if err != nil {
		return "", err
	}
	return text + grants, nil
}

func migration(preset, direction string, n Name) (string, error) {
	if preset == "" {
		preset = DefaultPreset
	}
	if !slices.Contains(Presets(), preset) {
		return "", fmt.Errorf("render table %q.%q: there is no SQL for preset %q; allowed: %s", n.Schema, n.Table, preset, strings.Join(Presets(), ", "))
	}
	file := preset + "/0001_outbox." + direction + ".sql"
	return render(file, map[string]string{"schema": n.Schema, "table": n.Table}, nil)
}

var placeholder = regexp.MustCompile(`:"([a-z_]+)"|:(tables|schemas|via_root)\b`)

// render fills a file in one pass, so that a value cannot be taken for a
// variable.
func render(file string, values map[string]string, tables []Name) (string, error) {
	text, err := files.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("render %s: %w", file, err)
	}
	lists := map[string]string{"via_root": values["via_root"]}
	if lists["tables"], lists["schemas"], err = list(tables); err != nil {
		return "", fmt.Errorf("render %s: %w", file, err)
	}
	out := placeholder.ReplaceAllStringFunc(string(text), func(variable string) string {
		m := placeholder.FindStringSubmatch(variable)
		if m[2] != "" {
			return lists[m[2]]
		}
		name, invalid := quote(values[m[1]])
		if invalid != nil && err == nil {
			err = fmt.Errorf("render %s: %s: %w", file, m[1], invalid)
		}
		return name
	})
	if err != nil {
		return "", err
	}
	return out, nil
}

// list gives the quoted tables, and their quoted schemas once each.
func list(tables []Name) (names, schemas string, err error) {
	var allNames, allSchemas []string
	for _, t := range tables {
		schema, err := quote(t.Schema)
		if err != nil {
			return "", "", fmt.Errorf("schema: %w", err)
		}
		table, err := quote(t.Table)
		if err != nil {
			return "", "", fmt.Errorf("table: %w", err)
		}
		allNames = append(allNames, schema+"."+table)
		if !slices.Contains(allSchemas, schema) {
			allSchemas = append(allSchemas, schema)
		}
	}
	return strings.Join(allNames, ", "), strings.Join(allSchemas, ", "), nil
}

// quote makes an identifier. The server would cut a longer one off, which could
// name something else.
func quote(name string) (string, error) {
	if name == "" || len(name) > 63 || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%q is no name; allowed: 1 to 63 bytes without a zero byte", name)
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`, nil
}
