package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/postgres/sample"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/resolve"
)

// Rows reads the rows of dead letters from their tables and routes them with the present
// configuration. The connection is made with the first row, and kept until Close. One goroutine
// uses it.
type Rows struct {
	settings relay.Config
	cfg      *config.Config
	finder   *sample.Finder
	routes   *resolve.Router
	ids      map[int]string // column of the event id, by table
}

// NewRows connects nowhere yet.
func NewRows(cfg *config.Config, settings relay.Config) *Rows {
	return &Rows{settings: settings, cfg: cfg, finder: sample.NewFinder(settings.Replication), ids: make(map[int]string)}
}

// Close frees the connection.
func (r *Rows) Close() { r.finder.Close() }

// Restore finds the row of a dead letter by the event id and routes it.
func (r *Rows) Restore(ctx context.Context, l *deadletter.Letter) (made deadletter.Restored, err error) {
	id := l.EventID()
	if id == "" {
		return made, fmt.Errorf("the letter has no %s, and without its event id the row cannot be found; discard it, and write the event again", strings.Join(l.Missing, ", "))
	}
	table := slices.IndexFunc(r.settings.Replication.Tables, func(t wal.Table) bool { return t.Schema+"."+t.Name == l.Table })
	if table < 0 {
		return made, fmt.Errorf("table %s is not in the configuration (it has %s), and the letter has no %s", l.Table, r.tables(), strings.Join(l.Missing, ", "))
	}
	column, err := r.idColumn(ctx, table)
	if err != nil {
		return made, err
	}
	row, err := r.finder.FindRow(ctx, table, column, id)
	if err != nil {
		return made, err
	}
	if row == nil {
		return made, fmt.Errorf("the letter has no %s, and the row is not in table %s any more; discard it, and write the event again", strings.Join(l.Missing, ", "), l.Table)
	}
	var buf record.Buffer // of its own and never reset: records of a key are sent together
	if err := r.routes.Route(ctx, &buf, row); err != nil {
		return made, err
	}
	if len(buf.Records) != 1 || l.Nth > 0 {
		return made, fmt.Errorf("the letter is record %d of its row, and the row as the table has it makes %d; discard the letter, and write the event again", l.Nth+1, len(buf.Records))
	}
	var apart record.Buffer
	return deadletter.Restored{Record: &buf.Records[0], Payload: r.routes.Payload(&apart, row)}, nil
}

// idColumn compiles the table's mapping at its first use.
func (r *Rows) idColumn(ctx context.Context, table int) (string, error) {
	if column, ok := r.ids[table]; ok {
		return column, nil
	}
	if r.routes == nil {
		routes, err := resolve.New(r.settings.Router)
		if err != nil {
			return "", err
		}
		r.routes = routes
	}
	relation, err := r.finder.Describe(ctx, table)
	if err != nil {
		return "", err
	}
	found, err := r.routes.Check(relation)
	if err != nil {
		return "", r.located(err)
	}
	column := found.Roles["id"]
	if column == "" || strings.ContainsAny(column, "# ") {
		return "", errors.New("the event id is not a column, so the row cannot be found by it")
	}
	r.ids[table] = column
	return column, nil
}

// located names the places at which a mapping was configured that does not fit.
func (r *Rows) located(err error) error {
	mistakes, ok := errors.AsType[*config.Errors](r.cfg.Locate(err))
	if !ok {
		return err
	}
	var texts []string
	for _, one := range mistakes.List {
		texts = append(texts, one.Text())
	}
	return errors.New(strings.Join(texts, "; "))
}

// tables are those that are configured, and where.
func (r *Rows) tables() string {
	var list []string
	for i, t := range r.settings.Replication.Tables {
		list = append(list, fmt.Sprintf("%s by %s", t, r.settings.Replication.Places[i]))
	}
	return strings.Join(list, ", ")
}
