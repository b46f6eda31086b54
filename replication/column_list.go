package replication

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// listVersion is the first with column lists in publications.
const listVersion = 150000

// needsLists refuses a server without column lists.
func needsLists(version int) error {
	if version >= listVersion {
		return nil
	}
	return &Error{
		Kind: KindRefused, Reason: ReasonServerVersion, Op: "publish only the mapped columns",
		Err: fmt.Errorf("PostgreSQL %d has no column lists in publications; version 15 and later have", version/10000), Hint: "leave --column-list out, or upgrade the server",
	}
}

// ColumnLists gives the columns to publish of each of cfg's tables without asking a
// server, by the rules of Setup. shapes are the tables as they will be, by their index;
// version is a server_version_num, zero when it is not known.
func ColumnLists(cfg Config, version int, shapes []*Relation, columns func(*Relation) ([]string, error)) (map[Table][]string, error) {
	if version != 0 {
		if err := needsLists(version); err != nil {
			return nil, err
		}
	}
	if err := insertsOnly(&cfg, cfg.published()); err != nil {
		return nil, err
	}
	lists := make(map[Table][]string, len(cfg.Tables))
	for i, table := range cfg.Tables {
		if cfg.wantsOf(i).Meta {
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
func listed(c *Config, table Table, rel *Relation, columns func(*Relation) ([]string, error)) ([]string, error) {
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

func unlisted(table Table, err error) error {
	return &Error{Kind: KindRefused, Reason: ReasonConfiguration, Op: "list the columns of", Subject: "table " + table.String(), Err: err}
}

// listed looks up what the mapping has to know of the table beside its shape.
func (s *setup) listed(table Table, rel *Relation) ([]string, error) {
	described := *rel
	if s.cfg.wantsOf(slices.Index(s.cfg.Tables, table)).Meta {
		var err error
		if described.Meta, err = readMeta(s.q, &described); err != nil {
			return nil, err
		}
	}
	return listed(&s.cfg, table, &described, s.opt.Columns)
}

// insertsOnly refuses a list where updates or deletes are published: those must have
// the columns of the replica identity, and that is the table's business.
func insertsOnly(c *Config, published string) error {
	if published == "insert" {
		return nil
	}
	return &Error{
		Kind: KindRefused, Reason: ReasonConfiguration, Op: "create", Subject: publicationSubject(c.Publication),
		Err:  fmt.Errorf("the mapping wants %s beside inserts, and a column list would have to hold the replica identity", strings.Join(c.operations(), " and ")),
		Hint: "leave --column-list out",
	}
}

// checkList compares what a publication that exists shows of a table with what the
// mapping reads. Setup alters nothing, so it says how.
func (s *setup) checkList(p *publicationRow, table Table, t *tableRow) error {
	want, shown := s.lists[table], p.membership(table)
	if s.opt.Columns == nil || shown.columns == nil {
		return nil
	}
	shown.only = t.only()
	var missing []string
	for _, column := range want {
		if !slices.Contains(shown.columns, column) {
			missing = append(missing, column)
		}
	}
	switch {
	case len(missing) > 0:
		return &Error{
			Kind: KindRefused, Reason: ReasonTableUnpublished, Op: "look at", Subject: publicationSubject(p.name),
			Err: fmt.Errorf("its column list of %s lacks %s, which the mapping reads", table, strings.Join(missing, ", ")), Hint: "run: " + shown.relist(table, want),
		}
	case len(shown.columns) > len(want) && p.allTables:
		s.report.Warnings = append(s.report.Warnings, fmt.Sprintf("%s is for all tables, which have no column lists", publicationSubject(p.name)))
	case len(shown.columns) > len(want):
		s.report.Warnings = append(s.report.Warnings, fmt.Sprintf("%s publishes %d columns of %s, and the mapping reads %d; to publish those alone: %s",
			publicationSubject(p.name), len(shown.columns), table, len(want), shown.relist(table, want)))
	}
	return nil
}

var (
	errNoColumns    = errors.New("the mapping reads no column")
	errNeedsCatalog = errors.New("its options of Debezium depend on keys and types that only a server could tell: once the table exists, `cdc-relay setup --column-list --dry-run` prints the statement")
)
