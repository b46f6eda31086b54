package setup

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
)

// lists gives the column lists of --column-list; nil without the flag.
func (o Script) lists(settings postgres.Config, mappings router.Config) (map[wal.Table][]string, error) {
	if !o.ColumnList {
		return nil, nil
	}
	if !o.CreateTable && len(settings.Tables) > 0 {
		return nil, errors.New("--column-list: only the server knows the columns of an existing table; run `cdc-relay setup --column-list --dry-run`, which asks the server and prints the statement, or add --create-table")
	}
	if len(mappings.Mappings) == 0 { // nothing is configured: as if the table alone were
		mappings.Mappings = []router.Mapping{{Table: settings.Tables[0].String(), Preset: "auto"}}
	}
	routes, err := router.New(mappings)
	if err != nil {
		return nil, err
	}
	shapes := make([]*wal.Relation, len(settings.Tables))
	for i, t := range settings.Tables {
		if shapes[i], err = madeBy(cmp.Or(o.Preset, shapeOf(mappings.Mappings, i))); err != nil {
			return nil, fmt.Errorf("--column-list: %w", err)
		}
		shapes[i].Namespace, shapes[i].Name = t.Schema, t.Name
	}
	lists, err := provision.ColumnLists(settings, o.Major*10000, shapes, routes.PublishedColumns)
	if err != nil {
		return nil, fmt.Errorf("--column-list: %w", err)
	}
	return lists, nil
}

// madeBy is the table that the SQL of a preset makes, as a stream would announce it.
func madeBy(preset string) (*wal.Relation, error) {
	text, err := migrations.Table(preset, "public", "outbox")
	if err != nil {
		return nil, err
	}
	columns, err := columnsIn(text)
	if err != nil {
		return nil, fmt.Errorf("read the SQL of preset %s: %w", preset, err)
	}
	return &wal.Relation{Columns: columns}, nil
}

var (
	tableBody  = regexp.MustCompile(`(?s)CREATE TABLE [^(]*\(\n(.*?)\n\);`)
	columnLine = regexp.MustCompile(`^(?:"([^"]+)"|([a-z_][a-z0-9_]*)) +([a-z0-9]+)(?:\((\d+)\))?(\[\])?(?: |$)`)
)

// columnsIn reads the table of a migration of ours: a column or a constraint a line. It
// is no parser of SQL, and refuses what is not written so.
func columnsIn(text string) ([]wal.Column, error) {
	body := tableBody.FindStringSubmatch(text)
	if body == nil {
		return nil, errors.New("it makes no table")
	}
	var columns []wal.Column
	for line := range strings.Lines(body[1]) {
		line = strings.TrimSuffix(strings.TrimSpace(line), ",")
		if strings.HasPrefix(line, "PRIMARY KEY (") || strings.HasPrefix(line, "UNIQUE (") {
			continue
		}
		part := columnLine.FindStringSubmatch(line)
		if part == nil {
			return nil, fmt.Errorf("%q is no column", line)
		}
		c, err := columnOf(cmp.Or(part[1], part[2]), part[3], part[4], part[5] != "")
		if err != nil {
			return nil, err
		}
		columns = append(columns, c)
	}
	return columns, nil
}

// sqlTypes are the types in our SQL, by their names there, with those of the catalog.
var sqlTypes = map[string]struct {
	oid, array uint32
	name       string
}{
	"bigint": {20, 1016, "int8"}, "bigserial": {20, 0, "int8"}, "boolean": {16, 1000, "bool"}, "bytea": {17, 1001, "bytea"},
	"integer": {23, 1007, "int4"}, "json": {114, 199, "json"}, "jsonb": {3802, 3807, "jsonb"}, "smallint": {21, 1005, "int2"},
	"text": {25, 1009, "text"}, "timestamp": {1114, 1115, "timestamp"}, "timestamptz": {1184, 1185, "timestamptz"},
	"uuid": {2950, 2951, "uuid"}, "varchar": {1043, 1015, "varchar"}, "xid8": {5069, 271, "xid8"},
}

func columnOf(name, typ, size string, array bool) (wal.Column, error) {
	t, ok := sqlTypes[typ]
	if !ok {
		return wal.Column{}, fmt.Errorf("column %q has the type %s, which is not known here", name, typ)
	}
	c := wal.Column{Name: name, Type: t.oid, TypeName: t.name, TypeMod: -1}
	if array {
		c.Type, c.TypeName, c.Array = t.array, "_"+t.name, true
	}
	if size == "" {
		return c, nil
	}
	n, err := strconv.ParseInt(size, 10, 32)
	if err != nil {
		return wal.Column{}, fmt.Errorf("column %q: %w", name, err)
	}
	if c.TypeMod = int32(n); t.name == "varchar" {
		c.TypeMod += 4 // the catalog counts a header that is no more
	}
	return c, nil
}
