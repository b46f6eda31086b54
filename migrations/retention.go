package migrations

import (
	"fmt"
	"strings"
)

// Housekeeping is a table whose old rows go, and where they move to.
type Housekeeping struct {
	Table   Name
	Column  string // one of the table's
	Archive *Name  // nil: rows are deleted
}

// Retention is the least that a role needs to delete or archive rows. It adds to the right to
// connect, and takes none to stream.
func Retention(login Login, tables []Housekeeping) (Part, error) {
	role, err := quote(login.Role)
	if err != nil {
		return Part{}, fmt.Errorf("role: %w", err)
	}
	var up, down []string
	grant := func(right, object string) {
		up = append(up, fmt.Sprintf("GRANT %s ON %s TO %s;", right, object, role))
		down = append(down, fmt.Sprintf("REVOKE %s ON %s FROM %s;", right, object, role))
	}
	if login.Database != "" {
		database, err := quote(login.Database)
		if err != nil {
			return Part{}, fmt.Errorf("database: %w", err)
		}
		grant("CONNECT", "DATABASE "+database)
	}
	for _, t := range tables {
		table, schema, err := list([]Name{t.Table})
		if err != nil {
			return Part{}, err
		}
		column, err := quote(t.Column)
		if err != nil {
			return Part{}, fmt.Errorf("column: %w", err)
		}
		grant("USAGE", "SCHEMA "+schema)
		grant("SELECT, DELETE", "TABLE "+table)
		up = append(up, "-- Lets it leave out rows that somebody has locked; without, it waits for them for two seconds.")
		grant("UPDATE ("+column+")", "TABLE "+table)
		if t.Archive == nil {
			continue
		}
		table, schema, err = list([]Name{*t.Archive})
		if err != nil {
			return Part{}, fmt.Errorf("archive: %w", err)
		}
		grant("USAGE", "SCHEMA "+schema)
		grant("INSERT", "TABLE "+table)
	}
	return Part{Name: "retention", Up: strings.Join(up, "\n"), Down: strings.Join(down, "\n")}, nil
}
