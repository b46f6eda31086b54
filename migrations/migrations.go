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
	"strings"
)

//go:embed */0001_outbox.up.sql */0001_outbox.down.sql
var files embed.FS

// DefaultPreset is our own table: what a relay needs and nothing else.
const DefaultPreset = "outbox"

// Polling is a table that a polling publisher can use beside the relay. It is a
// shape of DefaultPreset, not a preset of the router.
const Polling = "polling"

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
// empty preset is DefaultPreset; preset may also be Polling.
func Table(preset, schema, table string) (string, error) {
	return migration(preset, "up", Name{schema, table})
}

// DropTable is the SQL that takes back Table, events included.
func DropTable(preset, schema, table string) (string, error) {
	return migration(preset, "down", Name{schema, table})
}

func migration(preset, direction string, n Name) (string, error) {
	if preset == "" {
		preset = DefaultPreset
	}
	if !slices.Contains(Presets(), preset) {
		return "", fmt.Errorf("render table %q.%q: there is no SQL for preset %q; allowed: %s", n.Schema, n.Table, preset, strings.Join(Presets(), ", "))
	}
	file := preset + "/0001_outbox." + direction + ".sql"
	return render(file, map[string]string{"schema": n.Schema, "table": n.Table})
}

var placeholder = regexp.MustCompile(`:"([a-z_]+)"`)

// render fills a file in one pass, so that a value cannot be taken for a
// variable.
func render(file string, values map[string]string) (string, error) {
	text, err := files.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("render %s: %w", file, err)
	}
	return substitute(file, string(text), values)
}

func substitute(file, text string, values map[string]string) (string, error) {
	var err error
	out := placeholder.ReplaceAllStringFunc(text, func(variable string) string {
		key := placeholder.FindStringSubmatch(variable)[1]
		name, invalid := quote(values[key])
		if invalid != nil && err == nil {
			err = fmt.Errorf("render %s: %s: %w", file, key, invalid)
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
