package restore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/postgres/sample"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/resolve"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

// Rows reads the rows of dead letters from their tables and routes them with the present
// configuration. The connection is made with the first row, and kept until Close. One goroutine
// uses it.
type Rows struct {
	settings relay.Config
	cfg      *config.Config
	finder   *sample.Finder
	routes   *resolve.Router
	pinned   map[int]*router.Explanation // of tables
	bySchema map[tableSchema]*resolve.Router
}

// tableSchema is a schema, by its number, for the rows of a table.
type tableSchema struct {
	table  int
	schema uint32
}

// NewRows connects nowhere yet.
func NewRows(cfg *config.Config, settings relay.Config) *Rows {
	return &Rows{settings: settings, cfg: cfg, finder: sample.NewFinder(settings.Replication), pinned: make(map[int]*router.Explanation), bySchema: make(map[tableSchema]*resolve.Router)}
}

// Close frees the connection.
func (r *Rows) Close() { r.finder.Close() }

// Restore finds the rows that have the event id of a dead letter and routes each, as if it were
// the letter's: with its commit time, position and transaction, and by its schema. All of them are given.
func (r *Rows) Restore(ctx context.Context, l *deadletter.Letter) iter.Seq2[deadletter.Restored, error] {
	return func(yield func(deadletter.Restored, error) bool) {
		if err := r.each(ctx, l, func(made deadletter.Restored) error {
			if !yield(made, nil) {
				return errEnough
			}
			return nil
		}); err != nil && !errors.Is(err, errEnough) {
			yield(deadletter.Restored{}, err)
		}
	}
}

// errEnough ends a search of which no more is wanted.
var errEnough = errors.New("no more rows are wanted")

func (r *Rows) each(ctx context.Context, l *deadletter.Letter, give func(deadletter.Restored) error) error {
	if r.ofMessage(l) {
		made, err := r.message(ctx, l)
		if err != nil {
			return err
		}
		return give(made)
	}
	id := l.EventID()
	if id == "" {
		return fmt.Errorf("the letter has no %s, and without its event id the row cannot be found; discard it, and write the event again", strings.Join(l.Missing, ", "))
	}
	if op := l.Origin.Change; op != 0 {
		return fmt.Errorf("the letter has no %s, and is of %s: its table has the row as it is now, and not what was to be sent; discard it, and write the event again", strings.Join(l.Missing, ", "), op.Noun())
	}
	table, err := r.tableOf(ctx, l)
	if err != nil {
		return err
	}
	column, doubt, err := r.column(ctx, table, l)
	if err != nil {
		return err
	}
	found := false
	err = r.finder.FindRows(ctx, table, column, id, func(row *wal.Row) error {
		found = true
		if !l.Committed.IsZero() {
			row.Txn.Time = l.Committed
		}
		row.LSN, row.Txn.XID = l.Origin.LSN, l.Origin.XID
		made, err := r.make(ctx, l, row)
		if _, ok := errors.AsType[*schemas.Unmet](err); ok {
			return err // the row is not at fault
		}
		made.Err = err
		return give(made)
	})
	if err == nil && !found {
		return r.missing(l, table, column, doubt)
	}
	return err
}

// make routes a row by the schema of a letter, or by the present one where that is not to be had.
func (r *Rows) make(ctx context.Context, l *deadletter.Letter, row *wal.Row) (deadletter.Restored, error) {
	by := &r.settings.Router.Mappings[row.Relation.Table].Schema
	if l.Schema == 0 || by.Options.Kind == "" {
		return route(ctx, r.routes, l, row)
	}
	if by.Given == nil {
		routes, err := r.numbered(l.Schema, row.Relation)
		if err != nil {
			return deadletter.Restored{}, err
		}
		if made, err := route(ctx, routes, l, row); !errors.Is(err, errNoSchema) {
			return made, err
		}
	}
	made, err := route(ctx, r.routes, l, row)
	if err == nil && made.Record.Value != nil {
		id, err := encode.Framing(made.Record.Value)
		made.Recoded = err != nil || id != l.Schema
	}
	return made, err
}

// numbered is the router that encodes by the schema with a number.
func (r *Rows) numbered(id uint32, rel *wal.Relation) (*resolve.Router, error) {
	of := tableSchema{rel.Table, id}
	if routes := r.bySchema[of]; routes != nil {
		return routes, nil
	}
	cfg := r.settings.Router
	cfg.Registry = &numbered{Registry: cfg.Registry, id: id, gone: make(map[string]bool)}
	routes, err := resolve.New(cfg)
	if err == nil {
		_, err = routes.Pin(rel)
	}
	if err == nil {
		r.bySchema[of] = routes
	}
	return routes, err
}

func route(ctx context.Context, routes *resolve.Router, l *deadletter.Letter, row *wal.Row) (made deadletter.Restored, err error) {
	var buf record.Buffer // of its own and never reset: records of a key are sent together
	if err := routes.Route(ctx, &buf, row); err != nil {
		return made, err
	}
	if len(buf.Records) != 1 || l.Nth > 0 {
		return made, fmt.Errorf("the letter is record %d of its row, and the row as the table has it makes %d; discard the letter, and write the event again", l.Nth+1, len(buf.Records))
	}
	var apart record.Buffer
	return deadletter.Restored{Record: &buf.Records[0], Payload: routes.Payload(&apart, row)}, nil
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
