package provision

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// listVersion is the first with column lists in publications.
const listVersion = 150000

// needsLists refuses a server without column lists.
func needsLists(version int) error {
	if version >= listVersion {
		return nil
	}
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonServerVersion, Op: "publish only the mapped columns",
		Err: fmt.Errorf("PostgreSQL %d has no column lists in publications; version 15 and later have", version/10000), Hint: "leave --column-list out, or upgrade the server",
	}
}

// ColumnLists gives the columns to publish of each of cfg's tables without asking a
// server, by the rules of Setup. shapes are the tables as they will be, by their index;
// version is a server_version_num, zero when it is not known.
func ColumnLists(cfg postgres.Config, version int, shapes []*wal.Relation, columns func(*wal.Relation) ([]string, error)) (map[wal.Table][]string, error) {
	if version != 0 {
		if err := needsLists(version); err != nil {
			return nil, err
		}
	}
	if err := insertsOnly(&cfg, cfg.Published()); err != nil {
		return nil, err
	}
	lists := make(map[wal.Table][]string, len(cfg.Tables))
	for i, table := range cfg.Tables {
		if cfg.WantsOf(i).Meta {
			return nil, unlisted(table, errNeedsCatalog)
		}
		var err error
		if lists[table], err = listed(&cfg, table, shapes[i], columns); err != nil {
			return nil, err
		}
	}
	return lists, nil
}

// listed are the columns of a table that its mapping reads, in table order.
func listed(c *postgres.Config, table wal.Table, rel *wal.Relation, columns func(*wal.Relation) ([]string, error)) ([]string, error) {
	placed := *rel
	placed.Table = slices.Index(c.Tables, table)
	read, err := columns(&placed)
	if err == nil && len(read) == 0 {
		err = errNoColumns
	}
	if err != nil {
		return nil, unlisted(table, err)
	}
	return read, nil
}

func unlisted(table wal.Table, err error) error {
	return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: "list the columns of", Subject: "table " + table.String(), Err: err}
}

// listed looks up what the mapping has to know of the table beside its shape.
func (s *setup) listed(table wal.Table, rel *wal.Relation) ([]string, error) {
	described := *rel
	if s.cfg.WantsOf(slices.Index(s.cfg.Tables, table)).Meta {
		var err error
		if described.Meta, err = catalog.ReadColumnMeta(s.q, &described); err != nil {
			return nil, err
		}
	}
	return listed(&s.cfg, table, &described, s.opt.Columns)
}

// insertsOnly refuses a list where updates or deletes are published: those must have
// the columns of the replica identity, and that is the table's business.
func insertsOnly(c *postgres.Config, published string) error {
	if published == "insert" {
		return nil
	}
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: "create", Subject: postgres.PublicationSubject(c.Publication),
		Err:  fmt.Errorf("the mapping needs %s as well as inserts, and a column list would have to hold the replica identity", strings.Join(c.Operations(), " and ")),
		Hint: "leave --column-list out",
	}
}

// checkList compares what a publication that exists shows of a table with what the
// mapping reads. Setup alters nothing, so it says how.
func (s *setup) checkList(p *catalog.PublicationRow, table wal.Table, t *catalog.TableRow) error {
	want, shown := s.lists[table], p.Membership(table)
	if s.opt.Columns == nil || shown.Columns == nil {
		return nil
	}
	shown.Only = t.Only()
	var missing []string
	for _, column := range want {
		if !slices.Contains(shown.Columns, column) {
			missing = append(missing, column)
		}
	}
	switch {
	case len(missing) > 0:
		return &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonTableUnpublished, Op: "look at", Subject: postgres.PublicationSubject(p.Name),
			Err: fmt.Errorf("its column list of %s lacks %s, which the mapping reads", table, strings.Join(missing, ", ")), Hint: "run: " + shown.Relist(table, want),
		}
	case len(shown.Columns) > len(want) && p.AllTables:
		s.report.Warnings = append(s.report.Warnings, fmt.Sprintf("%s is for all tables, which have no column lists", postgres.PublicationSubject(p.Name)))
	case len(shown.Columns) > len(want):
		s.report.Warnings = append(s.report.Warnings, fmt.Sprintf("%s publishes %d columns of %s, and the mapping reads %d; to publish those alone: %s",
			postgres.PublicationSubject(p.Name), len(shown.Columns), table, len(want), shown.Relist(table, want)))
	}
	return nil
}

var (
	errNoColumns    = errors.New("the mapping reads no column")
	errNeedsCatalog = errors.New("its Debezium options depend on keys and types, which only the server knows: once the table exists, `cdc-relay setup --column-list --dry-run` prints the statement")
)
