package backfill

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/selection"
)

// Options say which rows are sent, and what the operator accepts.
type Options struct {
	Table       string   // as in the configuration; empty: all tables
	Where       string   // SQL condition
	Unpublished bool     // rows that the column of a polling publisher shows as not published
	Marks       []string // columns that a person named, the first of which it is; empty: the only one that is found
	All         bool
	Order       []string // columns

	MaxRate     int  // rows a second; zero: no limit
	AcceptWAL   bool // that the slot may be lost before the end
	AcceptOrder bool // that the rows of a key come in no order that means anything
	Restart     bool // that what an earlier attempt sent is sent again
	Yes         bool // do it

	Online        bool // send one bucket of keys after the other, and stream from the slot in between
	Buckets       int  // for Online: their number; zero: by the number of rows
	RowsAreKept   bool // for Online: nobody deletes a row, or changes a key, before its bucket is sent
	AcceptDeletes bool // for Online: that rows which were deleted since the last bucket may never be sent

	// GoesOn: where it is known which rows an interrupted backfill began with, they are the ones that
	// are meant, and not those that are chosen above. A cutover sets it, and Where, which nobody typed.
	GoesOn bool

	// SkipPresent leaves out rows that are in their topics already, where that keeps the order of
	// their keys. No publisher may send meanwhile. IDField is the member of a record's JSON value
	// that has the event id where no header id does; empty: none.
	SkipPresent bool
	IDField     string
}

func usage(text string, args ...any) error { return &advice.Usage{Err: fmt.Errorf(text, args...)} }

// chosen reports whether the command line says anything of the rows that are meant.
func (o *Options) chosen() bool { return o.Table != "" || o.selects() || len(o.Order) > 0 }

// selects reports whether the command line says which rows of a table are meant.
func (o *Options) selects() bool { return o.Where != "" || o.Unpublished || o.All }

// check refuses what makes no sense whatever the server has, and returns the indexes of the tables.
func (o *Options) check(settings *relay.Config) ([]int, error) {
	tables := settings.Replication.Tables
	said := 0
	for _, is := range []bool{o.Where != "", o.Unpublished, o.All} {
		if is {
			said++
		}
	}
	switch {
	case said > 1:
		return nil, usage("use only one of --where, --unpublished and --all")
	case o.MaxRate < 0:
		return nil, usage("--max-rate %d is not allowed; allowed: rows a second, or 0 for no limit", o.MaxRate)
	case strings.ContainsRune(o.Where, 0):
		return nil, usage("--where has a zero byte")
	case o.Online || o.Buckets != 0 || o.RowsAreKept || o.AcceptDeletes:
		if err := o.checkOnline(settings); err != nil {
			return nil, err
		}
	}
	switch {
	case len(tables) == 0:
		return nil, usage("the configuration has no table: logical messages from before the slot cannot be read")
	case settings.Replication.Shard.Divided() && settings.ParkKey:
		return nil, usage("relay.park_key with postgres.shards: the keys that the backfill parks would belong to no shard; set relay.park_key: false until the backfill is complete")
	case o.Table == "" && len(tables) > 1 && (o.Where != "" || len(o.Order) > 0):
		return nil, usage("--where and --order need --table: they apply to one table")
	}
	return selection.Tables(tables, o.Table)
}

// choice is which rows of one table are sent.
type choice struct {
	index int // of the configured tables
	where string
	order []string
	text  string // of where, for people
	begun bool   // an attempt before chose it
}

// of applies the options to a table.
func (o *Options) of(index int, t *snapshot.Table) (choice, error) {
	c := choice{index: index, order: o.Order, where: o.Where, text: "those of --where"}
	columns := t.Shape.PublishedColumns()
	switch {
	case o.Where != "" && o.GoesOn:
		c.text = "those of the publisher: " + o.Where
	case o.Where != "":
	case o.All:
		c.text = "all"
	case len(columns) > 1:
		return c, severalMarks(t.Name, columns)
	case len(columns) == 1:
		c.where, c.text = columns[0].Where, "those that are not published by column "+columns[0].Column
	case o.Unpublished:
		return c, usage("--unpublished: table %s has no known column that marks published rows; use --where", t.Name)
	default:
		return c, usage("table %s has no known column that marks published rows: use --all or --where", t.Name)
	}
	return c, nil
}

// severalMarks refuses to guess by which column a publisher goes: by another one the rows that are
// left out may be those that nobody has sent.
func severalMarks(table wal.Table, columns []snapshot.PublishedColumn) error {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Column
	}
	return progress.Refuse(fmt.Errorf("table %s has several columns that may say which rows are published: %s", table, strings.Join(names, ", ")),
		"say with --where which rows are not published, for example by the condition "+columns[0].Where+", or use --all")
}

// shape distinguishes what would send other rows, in another order, or as other records.
func shape(s *snapshot.Selection, settings *relay.Config) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %q %q %t", s.OID, s.Where, s.Order.Names(), s.Order.Total)
	for _, c := range s.Relation.Columns {
		fmt.Fprintf(h, " %q %d %d", c.Name, c.Type, c.TypeMod)
	}
	for _, c := range s.Shape.Columns { // of those above the order shows which is which
		if !published(s.Relation, c.Name) && (slices.Contains(s.Order.Names(), c.Name) || strings.Contains(s.Where, c.Name)) {
			fmt.Fprintf(h, " hidden %q %s", c.Name, c.Number)
		}
	}
	if mappings := settings.Router.Mappings; s.Relation.Table < len(mappings) {
		mapping, err := json.Marshal(mappings[s.Relation.Table])
		if err != nil {
			mapping = []byte(err.Error())
		}
		_, _ = h.Write(mapping) // it never fails
	}
	return fmt.Sprintf("%x", h.Sum64())
}

func published(rel *wal.Relation, column string) bool {
	return slices.ContainsFunc(rel.Columns, func(c wal.Column) bool { return c.Name == column })
}

// promise says what the order of old rows within a key is; none: nothing that means anything.
func promise(o *snapshot.Order) (text string, none bool) {
	by := "by " + strings.Join(o.Names(), ", ")
	switch o.Basis {
	case snapshot.Sequence:
		return by + ": the order in which numbers were drawn; it is the commit order if writers of one key wait for each other", false
	case snapshot.Time:
		return by + ": the order in which transactions began; rows of one transaction may change places", false
	case snapshot.Given:
		return by, false
	case snapshot.Key:
		return by + ": no order of writing", true
	case snapshot.Place:
	}
	return "none: by the place in the table", true
}

// fits refuses an order that the rows cannot be sent in.
func (o *Options) fits(s *snapshot.Selection, settings *relay.Config) error {
	_, none := promise(&s.Order)
	switch {
	case settings.Guarantee == relay.ExactlyOnce && !s.Order.Total:
		return progress.Refuse(fmt.Errorf("table %s has no unique key without NULLs, so that an interrupted backfill would send rows twice", s.Name),
			"add one, or backfill with relay.guarantee: at_least_once (and --online with relay.detect_moved_slot: true)")
	case settings.Guarantee == relay.ExactlyOnce && !s.Published(&s.Order):
		return progress.Refuse(fmt.Errorf("the publication hides a column of the order of table %s (%s), by which an interrupted backfill would tell the slot's rows", s.Name, strings.Join(s.Order.Names(), ", ")),
			"publish it, or name other columns with --order")
	case none && o.Yes && !o.AcceptOrder:
		return progress.Refuse(fmt.Errorf("table %s has no column that gives the order of writing, so the rows of a key could come in any order", s.Name),
			"name columns with --order, or use --accept-order")
	}
	return nil
}
