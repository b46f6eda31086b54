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
	Owned   bool   // partitions are made and removed, which only an owner may
}

// Marked is a table whose delivered rows get a mark.
type Marked struct {
	Table  Name
	Column string   // that is set
	Others []string // that are set on rejected rows
}

// Marks is the least that a role needs to set marks. It adds to the right to connect, and takes
// none to stream.
func Marks(login Login, tables []Marked) (Part, error) {
	g, err := newGrants(login)
	if err != nil {
		return Part{}, err
	}
	for _, t := range tables {
		table, schema, column, err := columnOf(t.Table, t.Column)
		if err != nil {
			return Part{}, err
		}
		g.grant("USAGE", "SCHEMA "+schema)
		g.grant("SELECT", "TABLE "+table)
		g.grant("UPDATE ("+column+")", "TABLE "+table)
		for _, other := range t.Others {
			if column, err = quote(other); err != nil {
				return Part{}, fmt.Errorf("column: %w", err)
			}
			g.grant("UPDATE ("+column+")", "TABLE "+table)
		}
	}
	return Part{Name: "mark", Up: strings.Join(g.up, "\n"), Down: strings.Join(g.down, "\n")}, nil
}

// columnOf quotes the names of a column, its table and its schema.
func columnOf(t Name, name string) (table, schema, column string, err error) {
	if table, schema, err = list([]Name{t}); err != nil {
		return "", "", "", err
	}
	if column, err = quote(name); err != nil {
		return "", "", "", fmt.Errorf("column: %w", err)
	}
	return table, schema, column, nil
}

// grants are those of one role.
type grants struct {
	role     string
	up, down []string
}

func newGrants(login Login) (*grants, error) {
	role, err := quote(login.Role)
	if err != nil {
		return nil, fmt.Errorf("role: %w", err)
	}
	g := &grants{role: role}
	if login.Database != "" {
		database, err := quote(login.Database)
		if err != nil {
			return nil, fmt.Errorf("database: %w", err)
		}
		g.grant("CONNECT", "DATABASE "+database)
	}
	return g, nil
}

func (g *grants) grant(right, object string) {
	g.up = append(g.up, fmt.Sprintf("GRANT %s ON %s TO %s;", right, object, g.role))
	g.down = append(g.down, fmt.Sprintf("REVOKE %s ON %s FROM %s;", right, object, g.role))
}

// own makes the role a member of whoever owns a table: only an owner makes and removes partitions.
func (g *grants) own(table, schema string) {
	member := func(statement string) string {
		return fmt.Sprintf("DO $$ BEGIN EXECUTE format('%s', (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = '%s'::regclass)); END $$;", statement, strings.ReplaceAll(table, "'", "''"))
	}
	role := strings.ReplaceAll(strings.ReplaceAll(g.role, "%", "%%"), "'", "''")
	g.grant("USAGE, CREATE", "SCHEMA "+schema)
	g.up = append(g.up, "-- Only an owner makes and removes partitions.", member("GRANT %I TO "+role))
	g.down = append(g.down, member("REVOKE %I FROM "+role))
}

// Retention is the least that a role needs to delete or archive rows. It adds to the right to
// connect, and takes none to stream.
func Retention(login Login, tables []Housekeeping) (Part, error) {
	g, err := newGrants(login)
	if err != nil {
		return Part{}, err
	}
	for _, t := range tables {
		table, schema, column, err := columnOf(t.Table, t.Column)
		if err != nil {
			return Part{}, err
		}
		g.grant("USAGE", "SCHEMA "+schema)
		if t.Owned {
			g.own(table, schema)
			continue
		}
		g.grant("SELECT, DELETE", "TABLE "+table)
		g.up = append(g.up, "-- Lets it leave out rows that somebody has locked; without, it waits for them for two seconds.")
		g.grant("UPDATE ("+column+")", "TABLE "+table)
		if t.Archive == nil {
			continue
		}
		table, schema, err = list([]Name{*t.Archive})
		if err != nil {
			return Part{}, fmt.Errorf("archive: %w", err)
		}
		g.grant("USAGE", "SCHEMA "+schema)
		g.grant("INSERT", "TABLE "+table)
	}
	return Part{Name: "retention", Up: strings.Join(g.up, "\n"), Down: strings.Join(g.down, "\n")}, nil
}
