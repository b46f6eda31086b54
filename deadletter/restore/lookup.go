package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/resolve"
)

// tableOf is the table that has a letter's row. Its name may be another one by now, and its former name
// that of another table.
func (r *Rows) tableOf(ctx context.Context, l *deadletter.Letter) (int, error) {
	name := l.Table
	if l.Of.Known {
		now, exists, err := r.finder.Named(ctx, l.Of.OID)
		if err != nil {
			return 0, err
		}
		if exists {
			name = now.Schema + "." + now.Name
		}
	}
	table, missing := r.table(name), strings.Join(l.Missing, ", ")
	switch {
	case table >= 0:
		return table, nil
	case name != l.Table:
		return 0, fmt.Errorf("the letter has no %s, and table %s, which has its row, is called %s now, which is not in the configuration (it has %s); add an entry of outbox for that name, with the mapping of the letter, and run this again: do not discard the letter", missing, l.Table, name, r.tables())
	}
	return 0, fmt.Errorf("table %s is not in the configuration (it has %s), and the letter has no %s", l.Table, r.tables(), missing)
}

// column is the one that has the letter's event id. doubt is why a row without it may be the letter's all the
// same; empty: none is.
func (r *Rows) column(ctx context.Context, table int, l *deadletter.Letter) (column, doubt string, err error) {
	mapping, err := r.pin(ctx, table)
	if err != nil {
		return "", "", err
	}
	id := l.Of.ID
	if id.Name == "" { // the mapping of then is not known
		if column = mapping.Roles["id"]; column == "" || strings.ContainsAny(column, "# ") {
			return "", "", errors.New("the event id is not a column, so the row cannot be found by it")
		}
		return column, fmt.Sprintf("the letter does not say of which column its event id is, and the mapping has it of %q now: if that was another one, run this with the mapping of that time", column), nil
	}
	relation, err := r.finder.Describe(ctx, table)
	if err != nil {
		return "", "", err
	}
	i := slices.IndexFunc(relation.Columns, func(c wal.Column) bool { return c.Name == id.Name })
	if i < 0 {
		return "", "", fmt.Errorf("the letter has no %s, and its event id is of column %q, which the stream of table %s does not have now; if it was renamed or is not published any more, undo that and run this again; if it was dropped, write the event again, then discard the letter",
			strings.Join(l.Missing, ", "), id.Name, r.settings.Replication.Tables[table])
	}
	if relation.Columns[i].Type != id.Type {
		doubt = "the column had another type when the letter was written: if the row has another value there now, complete it from the row by hand"
	}
	return id.Name, doubt, nil
}

// missing is the error of a letter whose event id no row has.
func (r *Rows) missing(l *deadletter.Letter, table int, column, doubt string) error {
	seen := fmt.Sprintf("the letter has no %s, and the row is not in table %s any more; ", strings.Join(l.Missing, ", "), r.settings.Replication.Tables[table])
	if doubt != "" {
		seen = fmt.Sprintf("the letter has no %s, and no row of table %s has its event id in column %q; %s; if the row was deleted, ", strings.Join(l.Missing, ", "), r.settings.Replication.Tables[table], column, doubt)
	}
	return errors.New(seen + "look for the event id in its topic, as a delivered row that PostgreSQL sent again after a crash may have become a letter; if it is not there, write the event again; then discard the letter")
}

// pin compiles the table's mapping at its first use.
func (r *Rows) pin(ctx context.Context, table int) (*router.Explanation, error) {
	if known := r.pinned[table]; known != nil {
		return known, nil
	}
	if r.routes == nil {
		routes, err := resolve.New(r.settings.Router)
		if err != nil {
			return nil, err
		}
		r.routes = routes
	}
	relation, err := r.finder.Describe(ctx, table)
	if err != nil {
		return nil, err
	}
	found, err := r.routes.Pin(relation)
	if err != nil {
		return nil, r.located(err)
	}
	r.pinned[table] = found
	return found, nil
}
