package replication

import (
	"errors"
	"fmt"
	"strings"
)

// tableMissing is the error for a configured table that is not there. A name that
// was written without quotes is in lower case by now, so a table whose name differs
// only in that is most likely the one that was meant.
func tableMissing(q querier, cfg Config, table Table) error {
	e := &Error{
		Kind: KindRefused, Reason: ReasonTableMissing, Op: "look at", Subject: "table " + table.String(),
		Err:  errors.New("the table does not exist"),
		Hint: "correct the name" + cfg.place(table) + ", or create it with `cdc-relay setup --create-table`",
	}
	similar, err := similarTables(q, table)
	if err != nil {
		return err
	}
	if len(similar) > 0 {
		e.Err = fmt.Errorf("the table does not exist, but %s does", names(similar))
		e.Hint = fmt.Sprintf("did you mean %s? Parts without double quotes are read in lower case: write table: '%s'%s; if another table is meant, make it with what `cdc-relay sql --create-table` prints",
			names(similar), similar[0], cfg.place(table))
	}
	return e
}

// similarTables are those whose names differ from table's in case alone.
func similarTables(q querier, table Table) ([]Table, error) {
	rows, err := q.all(fmt.Sprintf(`SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND lower(n.nspname) = lower(%[1]s) AND lower(c.relname) = lower(%[2]s)
			AND (n.nspname, c.relname) <> (%[1]s, %[2]s) ORDER BY n.nspname <> %[1]s, 1, 2`, singleQuoted(table.Schema), singleQuoted(table.Name)))
	if err != nil {
		return nil, classify("look for table "+table.String(), err)
	}
	var similar []Table
	for _, row := range rows {
		similar = append(similar, Table{Schema: row[0].text, Name: row[1].text})
	}
	return similar, nil
}

func names(tables []Table) string {
	list := make([]string, len(tables))
	for i, t := range tables {
		list[i] = t.String()
	}
	return strings.Join(shorten(list), ", ")
}

// place says where a table was configured, to stand behind what is said about it.
func (c Config) place(table Table) string {
	for i, t := range c.Tables {
		if t == table && i < len(c.Places) && c.Places[i] != "" {
			return " (" + c.Places[i] + ")"
		}
	}
	return ""
}

// publicationMissing completes what readPublication says of a publication that is
// not there: with the slot there already, setup would refuse.
func publicationMissing(q querier, version int, cfg Config, err error) error {
	var e *Error
	if Reason(err) != ReasonPublicationMissing || !errors.As(err, &e) {
		return err
	}
	slot, missing := readSlot(q, version, cfg.Slot)
	if missing != nil {
		return err
	}
	with := *e
	with.Err = fmt.Errorf("the publication does not exist, and %s, which exists, cannot stream rows from before it", slotSubject(cfg.Slot))
	with.Hint = hintRecreate(ReasonPublicationMissing, slot.Confirmed)
	return &with
}
